// The places of a program's values, on random programs; one variant fuses ops that another keeps apart.

#include <algorithm>
#include <random>
#include <span>

#include <gtest/gtest.h>

#include "kernels/program/operands.h"
#include "kernels/program/program.h"

namespace minfer {
namespace {

constexpr ProgramLimits kArenaLimits{.tokens = 7, .logit_rows = 3};

/// Norms of values that were written before; each writes a new value or adds to an existing one.
Program random_program(std::mt19937& random, int ops) {
  const auto below = [&](size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(random);
  };
  Program program;
  const auto value_of = [&](size_t index) {
    const int64_t cols = program.values[index].cols;
    return Tensor{.cols = cols, .stride = cols, .value = static_cast<int32_t>(index)};
  };
  const auto new_value = [&] {
    const auto rows_of = below(4) == 0 ? RowsOf::logit_row : RowsOf::token;
    program.values.push_back(
        {DType::f32, rows_of, static_cast<int64_t>(1 + below(3)), static_cast<int64_t>(1 + below(300))});
    return value_of(program.values.size() - 1);
  };
  program.body.push_back({.id = 0, .args = EmbedArgs{.table = {}, .out = new_value()}});
  for (OpId id = 1; id < ops; ++id) {
    const Tensor x = value_of(program.values.size() - 1 - below(std::min<size_t>(4, program.values.size())));
    const bool adds = below(3) == 0;
    const NormArgs norm{
        .x = x, .add_to_out = adds, .out = adds ? value_of(below(program.values.size())) : new_value()};
    (id < ops - 3 ? program.body : program.head).push_back({.id = id, .args = norm});
  }
  program.logits = value_of(program.values.size() - 1);
  return program;
}

/// Runs a program on an array that notes the owner of each byte. Returns how often an operand was not intact, before an op that reads it
/// or behind it: an op must not write where its own operands lie.
int spoilt_operands(const Program& program, const Arena& arena, int slices) {
  std::vector<int32_t> owner(arena.bytes, -1);
  int spoilt = 0;
  const auto bytes_of = [&](int32_t value) {
    const ProgramValue& of = program.values[static_cast<size_t>(value)];
    const auto bytes = static_cast<size_t>(kArenaLimits.rows_of(of) * of.cols) * sizeof(float);
    return std::span(owner).subspan(arena.offsets[static_cast<size_t>(value)], bytes);
  };
  const auto check = [&](int32_t value) {
    if (std::ranges::any_of(bytes_of(value), [&](int32_t who) { return who != value; })) ++spoilt;
  };
  const auto run = [&](const Op& op) {
    for_each_value(op.args, [&](Use use, const auto& operand) {
      if (use != Use::write) check(operand.value);
    });
    for_each_value(op.args, [&](Use use, const auto& operand) {
      if (use != Use::read) std::ranges::fill(bytes_of(operand.value), operand.value);
    });
    for_each_value(op.args, [&](Use, const auto& operand) { check(operand.value); });
  };
  for (const Op& op : program.body)
    run(op);
  for (int slice = 0; slice < slices; ++slice) {
    for (const Op& op : program.head)
      run(op);
  }
  return spoilt;
}

/// The program without a norm in front of another; the next norm reads the first one's input, as a fused product does.
Program without_a_norm(Program program, size_t index) {
  auto& next = std::get<NormArgs>(program.body[index + 1].args);
  next.x = std::get<NormArgs>(program.body[index].args).x;
  program.body.erase(program.body.begin() + static_cast<int64_t>(index));
  return program;
}

TEST(ProgramArena, NothingIsWrittenOverWhatIsStillRead) {
  std::mt19937 random(7);
  size_t shared = 0, apart = 0;
  for (int round = 0; round < 300; ++round) {
    const Program program = random_program(random, 12 + round % 20);
    std::vector<Program> variants{program};
    for (size_t i = 1; i + 1 < program.body.size(); ++i) {
      const auto& norm = std::get<NormArgs>(program.body[i].args);
      const auto& next = std::get<NormArgs>(program.body[i + 1].args);
      if (norm.add_to_out || next.x.value != norm.out.value) continue;
      bool is_read_again = false;
      for (const auto* ops : {&program.body, &program.head}) {
        for (const Op& op : *ops) {
          for_each_value(op.args, [&](Use use, const auto& operand) {
            is_read_again |=
                op.id > program.body[i + 1].id && use != Use::write && operand.value == norm.out.value;
          });
        }
      }
      if (is_read_again || next.out.value == norm.out.value) continue;
      variants.push_back(without_a_norm(program, i));
      break;
    }
    const Arena arena = lay_out(variants, kArenaLimits);
    for (const Program& variant : variants)
      EXPECT_EQ(spoilt_operands(variant, arena, 3), 0) << "round " << round;
    shared += arena.bytes;
    for (const ProgramValue& value : program.values)
      apart += static_cast<size_t>(kArenaLimits.rows_of(value) * value.cols) * sizeof(float);
  }
  EXPECT_LT(shared, apart * 3 / 4) << "bytes: values share memory";
}

}  // namespace
}  // namespace minfer
