// Gated delta nets and head gates on the CPU backend: against double precision, in pieces of any size, in slots of any content.
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/delta_steps.h"
#include "tests/support/isa_scope.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paged_batch.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using reference::Matrix;
using test::DeltaOutputs;
using test::DeviceArray;
using test::GuardedTensor;
using test::PagedBatch;
using test::rows_of;
using test::SequenceShape;
using test::text_of;

/// A layer's weights, and memory for states that holds NaN until something is written.
struct DeltaLayer {
  DeltaLayer(Backend& backend, const DeltaNetShape& of, int32_t num_slots)
      : weights(of),
        shape(of),
        conv_states(backend, std::vector<float>(static_cast<size_t>(num_slots * of.conv_state()), kNan)),
        delta_states(backend, std::vector<float>(static_cast<size_t>(num_slots * of.delta_state()), kNan)),
        states{conv_states.data(), delta_states.data(), num_slots} {}
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

  test::DeltaWeights weights;
  DeltaNetShape shape;
  DeviceArray<float> conv_states, delta_states;
  RecurrentLayer states;
};

/// Runs a step of sequences in these slots; x [tokens, channels] and gates [tokens, gates_of()].
DeltaOutputs run_step(Backend& backend, const DeltaLayer& layer, const std::vector<SequenceShape>& sequences,
                      const std::vector<int32_t>& slots, const std::vector<float>& x,
                      const std::vector<float>& gates) {
  const PagedBatch paged(backend, sequences, 16, 1);
  const DeviceArray<int32_t> device_slots(backend, slots);
  ForwardBatch batch = paged.batch();
  batch.state_slots = device_slots.data();
  const DeltaNetShape& shape = layer.shape;
  const GuardedTensor in(backend, batch.num_tokens, shape.channels(), x),
      of_gates(backend, batch.num_tokens, test::gates_of(shape), gates);
  const GuardedTensor qkv(backend, batch.num_tokens, shape.channels()),
      values(backend, batch.num_tokens, shape.value_columns());
  const Weight weight{.data = layer.weights.conv.data(), .rows = shape.conv_size, .cols = shape.channels()};
  backend.delta_conv(
      0, batch,
      {.x = in.tensor(), .shape = shape, .weight = weight, .state = layer.states, .out = qkv.tensor()});
  DeltaRuleArgs rule{.qkv = qkv.tensor(),
                     .gates = {},
                     .shape = shape,
                     .dt_bias = test::load_vector(backend, layer.weights.dt_bias),
                     .decay = test::load_vector(backend, layer.weights.decay),
                     .state = layer.states,
                     .out = values.tensor()};
  test::set_gates(rule, of_gates.tensor());
  backend.delta_rule(0, batch, rule);
  EXPECT_TRUE(in.intact() && of_gates.intact() && qkv.intact() && values.intact());
  EXPECT_EQ(in.values(), x);
  if (!shape.decays_rows) {
    EXPECT_EQ(of_gates.values(), gates);
  }
  return {qkv.values(), values.values()};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(DeltaNet, MatchesTheReferenceFromStepToStep) {
  const auto backend = make_cpu_backend(2);
  for (const DeltaNetShape& shape : test::kDeltaShapes) {
    const DeltaLayer layer(*backend, shape, 5);
    const std::vector<int32_t> slots{3, 0, 4};
    test::expect_delta_reference(
        layer.weights, {{5, 1, 2}, {1, 1, 70}, {2, 3, 1}}, {.conv = 1e-12, .rule = 1e-11},
        [&](const std::vector<SequenceShape>& sequences, const auto& x, const auto& gates) {
          return run_step(*backend, layer, sequences, slots, x, gates);
        });
    test::expect_states_of(slots, shape, layer.conv_states.values(), layer.delta_states.values());
  }
}

/// One sequence in pieces, beside another one, on every instruction set: the same bits as all at once.
TEST(DeltaNet, BitsDependOnNeitherPiecesNorNeighboursNorInstructionSet) {
  constexpr int32_t kTokens = 70;
  for (const DeltaNetShape& shape : test::kDeltaShapes) {
    const int64_t channels = shape.channels(), num_gates = test::gates_of(shape);
    const std::vector<float> x = test::normal_values(kTokens * channels, 1);
    const std::vector<float> gates = test::normal_values(kTokens * num_gates, 2);
    DeltaOutputs expected;
    std::vector<float> expected_state;
    for (const std::string& isa : test::IsaScope::available()) {
      const test::IsaScope scope(isa);
      const auto backend = make_cpu_backend(2);
      for (const int32_t piece : {kTokens, 1, 3, 64}) {
        const DeltaLayer layer(*backend, shape, 2);
        DeltaOutputs all;
        for (int32_t first = 0; first < kTokens; first += piece) {
          const int32_t count = std::min(piece, kTokens - first);
          std::vector<float> step_x = rows_of(x, channels, 0, 2),  // of a sequence that begins in each step
              step_gates = rows_of(gates, num_gates, 0, 2);
          const std::vector<float> own_x = rows_of(x, channels, first, count),
                                   own_gates = rows_of(gates, num_gates, first, count);
          step_x.insert(step_x.end(), own_x.begin(), own_x.end());
          step_gates.insert(step_gates.end(), own_gates.begin(), own_gates.end());
          const DeltaOutputs out =
              run_step(*backend, layer, {{2, 2}, {first + count, count}}, {0, 1}, step_x, step_gates);
          const auto append = [&](std::vector<float>& to, const std::vector<float>& from, int64_t cols) {
            to.insert(to.end(), from.begin() + 2 * cols, from.end());
          };
          append(all.qkv, out.qkv, channels);
          append(all.values, out.values, shape.value_columns());
        }
        const std::vector<float> state = rows_of(layer.delta_states.values(), shape.delta_state(), 1, 1);
        if (expected.qkv.empty()) {
          expected = all;
          expected_state = state;
        }
        const std::string what = fmt::format("{}, {}, pieces of {}", text_of(shape), isa, piece);
        EXPECT_TRUE(same_bits(all.qkv, expected.qkv)) << what;
        EXPECT_TRUE(same_bits(all.values, expected.values)) << what;
        EXPECT_TRUE(same_bits(state, expected_state)) << what;
      }
    }
  }
}

TEST(DeltaNet, LargeGatesNeitherOverflowNorForget) {
  const auto backend = make_cpu_backend(1);
  for (const bool decays_rows : {false, true}) {
    const DeltaNetShape shape{.key_heads = 1,
                              .value_heads = 1,
                              .key_size = 4,
                              .value_size = 4,
                              .conv_size = 2,
                              .decays_rows = decays_rows};
    for (const float gate : {-1e4f, 1e4f}) {
      const DeltaLayer layer(*backend, shape, 1);
      const std::vector<float> x = test::normal_values(3 * shape.channels(), 1);
      const DeltaOutputs out =
          run_step(*backend, layer, {{3, 3}}, {0}, x,
                   std::vector<float>(static_cast<size_t>(3 * test::gates_of(shape)), gate));
      for (const float value : out.values)
        EXPECT_TRUE(std::isfinite(value));
    }
  }
}

TEST(DeltaNet, RefusesWhatDoesNotFit) {
  const auto backend = make_cpu_backend(1);
  const DeltaNetShape shape = test::kDeltaShapes[1];
  const DeltaLayer layer(*backend, shape, 2);
  const std::vector<float> x(static_cast<size_t>(shape.channels())), gates(8);
  EXPECT_THROW(run_step(*backend, layer, {{1, 1}}, {2}, x, gates), Error) << "a slot behind the last";
  EXPECT_THROW(run_step(*backend, layer, {{1, 1}}, {-1}, x, gates), Error);
  DeltaLayer other(*backend, shape, 2);
  other.shape.value_heads = 3;
  EXPECT_THROW(run_step(*backend, other, {{1, 1}}, {0}, std::vector<float>(84), std::vector<float>(6)), Error)
      << "value heads of one and a half key heads";
  DeltaLayer rows(*backend, shape, 2);
  rows.shape.decays_rows = true;
  EXPECT_THROW(run_step(*backend, rows, {{1, 1}}, {0}, x, std::vector<float>(4 + 4 * 12)), Error)
      << "a dt_bias of heads, where rows decay";
  const GuardedTensor tensor(*backend, 1, 12, std::vector<float>(12));
  EXPECT_THROW(backend->head_gate(0, {.x = tensor.tensor(),
                                      .gate = tensor.tensor(),
                                      .heads = 5,
                                      .gate_stride = 2,
                                      .out = tensor.tensor()}),
               Error);
  EXPECT_THROW(backend->head_gate(0, {.x = tensor.tensor(),
                                      .gate = tensor.tensor(),
                                      .heads = 3,
                                      .gate_stride = 8,
                                      .out = tensor.tensor()}),
               Error)
      << "gates that end before the last head's";
}

TEST(HeadGate, MatchesTheReferenceOnEveryInstructionSet) {
  for (const int64_t size : {1, 12, 16, 33, 256}) {
    for (const auto function :
         {HeadGateArgs::Function::sigmoid, HeadGateArgs::Function::silu, HeadGateArgs::Function::gelu_tanh}) {
      for (const bool has_norm : {false, true}) {
        constexpr int64_t kRows = 3, kHeads = 4;
        const std::vector<float> x = test::normal_values(kRows * kHeads * size, 1);
        // Gates behind the heads of another tensor, as the gates of queries are.
        const std::vector<float> pairs = test::normal_values(kRows * kHeads * 2 * size, 2, 3.0f);
        const std::vector<float> norm = has_norm ? test::normal_values(size, 3) : std::vector<float>();
        Matrix gate(kRows, kHeads * size);
        for (int64_t i = 0; i < kRows * kHeads; ++i) {
          for (int64_t c = 0; c < size; ++c)
            gate.data[static_cast<size_t>(i * size + c)] =
                static_cast<double>(pairs[static_cast<size_t>((2 * i + 1) * size + c)]);
        }
        const Matrix expected = reference::head_gate(reference::to_matrix(x, kRows, kHeads * size), gate,
                                                     kHeads, function, norm, 1e-5);
        std::vector<float> first;
        for (const std::string& isa : test::IsaScope::available()) {
          const test::IsaScope scope(isa);
          const auto backend = make_cpu_backend(2);
          for (const bool in_place : {false, true}) {
            const GuardedTensor in(*backend, kRows, kHeads * size, x),
                all(*backend, kRows, kHeads * 2 * size, pairs);
            const GuardedTensor other(*backend, kRows, kHeads * size);
            const GuardedTensor& out = in_place ? in : other;
            Tensor gates = all.tensor();
            gates.data = gates.f32() + size;
            gates.cols -= size;
            backend->head_gate(0, {.x = in.tensor(),
                                   .gate = gates,
                                   .heads = kHeads,
                                   .gate_stride = 2 * size,
                                   .function = function,
                                   .norm = has_norm ? test::load_vector(*backend, norm) : Weight{},
                                   .norm_eps = 1e-5f,
                                   .out = out.tensor()});
            EXPECT_TRUE(in.intact() && all.intact() && other.intact());
            const std::vector<float> values = out.values();
            EXPECT_LE(test::nmse(values, expected.data), 1e-12) << size << ' ' << isa;
            if (first.empty()) first = values;
            EXPECT_TRUE(same_bits(values, first)) << size << ' ' << isa;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace minfer
