#include <algorithm>
#include <limits>

#include "kernels/program/operands.h"

namespace minfer {
namespace {

constexpr size_t kAlignment = 256;  ///< of a GPU's allocations: its bulk copies need 128

/// From the first op that uses a value to the last one.
struct LiveRange {
  OpId first = std::numeric_limits<OpId>::max();
  OpId last = -1;

  bool meets(const LiveRange& other) const { return first <= other.last && other.first <= last; }
};

std::vector<LiveRange> live_ranges(std::span<const Program> variants) {
  std::vector<LiveRange> ranges(variants.front().values.size());
  constexpr OpId kEnd = std::numeric_limits<OpId>::max();
  for (const Program& program : variants) {
    const auto use = [&](const Op& op, bool is_head) {
      for_each_value(op.args, [&](Use, const auto& operand) {
        LiveRange& range = ranges[static_cast<size_t>(operand.value)];
        range.first = std::min(range.first, op.id);
        range.last = is_head ? kEnd : std::max(range.last, op.id);
      });
    };
    for (const Op& op : program.body)
      use(op, false);
    for (const Op& op : program.head)
      use(op, true);
  }
  return ranges;
}

}  // namespace

Arena lay_out(std::span<const Program> variants, const ProgramLimits& limits) {
  const std::vector<ProgramValue>& values = variants.front().values;
  const std::vector<LiveRange> ranges = live_ranges(variants);
  Arena arena{.offsets = std::vector<size_t>(values.size())};
  const auto bytes_of = [&](size_t index) {
    const ProgramValue& value = values[index];
    const size_t bytes = static_cast<size_t>(limits.rows_of(value)) * row_bytes(value.dtype, value.cols);
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::vector<size_t> placed;  // by offset
  for (size_t i = 0; i < values.size(); ++i) {
    size_t offset = 0;
    for (const size_t other : placed) {
      if (!ranges[i].meets(ranges[other])) continue;
      if (arena.offsets[other] >= offset + bytes_of(i)) break;
      offset = std::max(offset, arena.offsets[other] + bytes_of(other));
    }
    arena.offsets[i] = offset;
    arena.bytes = std::max(arena.bytes, offset + bytes_of(i));
    placed.insert(
        std::ranges::upper_bound(placed, offset, {}, [&](size_t other) { return arena.offsets[other]; }), i);
  }
  return arena;
}

void place_values(Program& program, const Arena& arena, std::byte* memory) {
  const auto place = [&](Use, auto& operand) {
    const auto value = static_cast<size_t>(operand.value);
    std::byte* data = memory + arena.offsets[value];
    if constexpr (requires { operand.first_col; })
      data += row_bytes(program.values[value].dtype, operand.first_col);
    operand.data = reinterpret_cast<decltype(operand.data)>(data);
  };
  for (std::vector<Op>* ops : {&program.body, &program.head}) {
    for (Op& op : *ops)
      for_each_value(op.args, place);
  }
  place(Use::read, program.logits);
}

}  // namespace minfer
