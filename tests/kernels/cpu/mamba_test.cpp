// Mamba-2 on the CPU backend: against double precision, in pieces of any size, in slots of any content.
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/isa_scope.h"
#include "tests/support/mamba_steps.h"
#include "tests/support/models/fixtures.h"

namespace minfer {
namespace {

using test::DeviceArray;
using test::GuardedTensor;
using test::MambaOutputs;
using test::SequenceShape;
using test::text_of;

constexpr float kUnwritten = std::numeric_limits<float>::quiet_NaN();

/// A layer's weights, and memory for states that holds NaN until something is written.
struct MambaLayer {
  MambaLayer(Backend& backend, const DeltaNetShape& of, int32_t num_slots)
      : weights(of),
        conv_states(backend,
                    std::vector<float>(static_cast<size_t>(num_slots * of.conv_state()), kUnwritten)),
        scan_states(backend,
                    std::vector<float>(static_cast<size_t>(num_slots * of.delta_state()), kUnwritten)),
        states{conv_states.data(), scan_states.data(), num_slots} {}

  test::MambaWeights weights;
  DeviceArray<float> conv_states, scan_states;
  RecurrentLayer states;
};

/// Columns [first, first + count) of a tensor.
Tensor columns_of(Tensor tensor, int64_t first, int64_t count) {
  tensor.data = tensor.f32() + first;
  tensor.cols = count;
  return tensor;
}

/// Runs a step of sequences in these slots; rows [tokens, mamba_columns].
MambaOutputs run_step(Backend& backend, const MambaLayer& layer, const std::vector<SequenceShape>& sequences,
                      const std::vector<int32_t>& slots, const std::vector<float>& rows) {
  const test::PagedBatch paged(backend, sequences, 16, 1);
  const DeviceArray<int32_t> device_slots(backend, slots);
  ForwardBatch batch = paged.batch();
  batch.state_slots = device_slots.data();
  const DeltaNetShape& shape = layer.weights.shape;
  const int64_t inner = shape.value_columns(), channels = shape.channels();
  const GuardedTensor all(backend, batch.num_tokens, test::mamba_columns(shape), rows);
  const GuardedTensor xbc(backend, batch.num_tokens, channels), values(backend, batch.num_tokens, inner);
  backend.delta_conv(
      0, batch,
      {.x = columns_of(all.tensor(), inner, channels),
       .shape = shape,
       .weight = {.data = layer.weights.conv.data(), .rows = shape.conv_size, .cols = channels},
       .state = layer.states,
       .out = xbc.tensor(),
       .bias = test::load_vector(backend, layer.weights.bias),
       .norms_heads = false});
  backend.mamba_scan(0, batch,
                     {.xbc = xbc.tensor(),
                      .dt = columns_of(all.tensor(), inner + channels, shape.value_heads),
                      .gate = columns_of(all.tensor(), 0, inner),
                      .shape = shape,
                      .dt_bias = test::load_vector(backend, layer.weights.dt_bias),
                      .decay = test::load_vector(backend, layer.weights.decay),
                      .skip = test::load_vector(backend, layer.weights.skip),
                      .state = layer.states,
                      .out = values.tensor()});
  EXPECT_TRUE(all.intact() && xbc.intact() && values.intact()) << text_of(shape);
  EXPECT_EQ(all.values(), rows);
  return {xbc.values(), values.values()};
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Mamba, MatchesTheReferenceFromStepToStep) {
  const auto backend = make_cpu_backend(2);
  for (const DeltaNetShape& shape : test::kMambaShapes) {
    const MambaLayer layer(*backend, shape, 5);
    const std::vector<int32_t> slots{3, 0, 4};
    test::expect_mamba_reference(
        layer.weights, {{5, 1, 2}, {1, 1, 70}, {2, 3, 1}}, 1e-12,
        [&](const std::vector<SequenceShape>& sequences, const std::vector<float>& rows) {
          return run_step(*backend, layer, sequences, slots, rows);
        });
    test::expect_states_of(slots, shape, layer.conv_states.values(), layer.scan_states.values());
  }
}

/// One sequence in pieces, behind one that begins in each step, on every instruction set and on one and three threads: the same bits as all
/// at once.
TEST(Mamba, BitsDependOnNeitherPiecesNorNeighboursNorThreadsNorInstructionSet) {
  constexpr int32_t kTokens = 70;
  for (const DeltaNetShape& shape : test::kMambaShapes) {
    const int64_t columns = test::mamba_columns(shape);
    const std::vector<float> rows = test::normal_values(kTokens * columns, 1);
    MambaOutputs expected;
    std::vector<float> expected_state;
    for (const std::string& isa : test::IsaScope::available()) {
      const test::IsaScope scope(isa);
      for (const auto& [piece, threads] : {std::pair{kTokens, 1}, {1, 3}, {3, 1}, {64, 3}}) {
        const auto backend = make_cpu_backend(threads);
        const MambaLayer layer(*backend, shape, 2);
        MambaOutputs all;
        for (int32_t first = 0; first < kTokens; first += piece) {
          const int32_t count = std::min(piece, kTokens - first);
          std::vector<float> of_step = test::rows_of(rows, columns, 0, 2);
          const std::vector<float> own = test::rows_of(rows, columns, first, count);
          of_step.insert(of_step.end(), own.begin(), own.end());
          const MambaOutputs out =
              run_step(*backend, layer, {{2, 2}, {first + count, count}}, {0, 1}, of_step);
          all.xbc.insert(all.xbc.end(), out.xbc.begin() + 2 * shape.channels(), out.xbc.end());
          all.values.insert(all.values.end(), out.values.begin() + 2 * shape.value_columns(),
                            out.values.end());
        }
        const std::vector<float> state = test::rows_of(layer.scan_states.values(), shape.delta_state(), 1, 1);
        if (expected.xbc.empty()) {
          expected = all;
          expected_state = state;
        }
        const std::string what = fmt::format("{}, {}, pieces of {}", text_of(shape), isa, piece);
        EXPECT_TRUE(equal_bits(all.xbc, expected.xbc)) << what;
        EXPECT_TRUE(equal_bits(all.values, expected.values)) << what;
        EXPECT_TRUE(equal_bits(state, expected_state)) << what;
      }
    }
  }
}

TEST(Mamba, LargeStepsNeitherOverflowNorRemember) {
  const auto backend = make_cpu_backend(1);
  const DeltaNetShape shape{.key_heads = 1, .value_heads = 1, .key_size = 4, .value_size = 4, .conv_size = 2};
  for (const float dt : {-1e4f, 1e4f}) {
    const MambaLayer layer(*backend, shape, 1);
    std::vector<float> rows = test::normal_values(3 * test::mamba_columns(shape), 1);
    for (size_t t = 1; t <= 3; ++t)
      rows[t * static_cast<size_t>(test::mamba_columns(shape)) - 1] = dt;
    const MambaOutputs out = run_step(*backend, layer, {{3, 3}}, {0}, rows);
    for (const float value : out.values)
      EXPECT_TRUE(std::isfinite(value)) << dt;
  }
}

TEST(Mamba, RefusesWhatDoesNotFit) {
  const auto backend = make_cpu_backend(1);
  const DeltaNetShape shape = test::kMambaShapes[1];
  const std::vector<float> rows(static_cast<size_t>(test::mamba_columns(shape)));
  const MambaLayer layer(*backend, shape, 2);
  EXPECT_THROW(run_step(*backend, layer, {{1, 1}}, {2}, rows), Error) << "a slot behind the last";
  EXPECT_THROW(run_step(*backend, layer, {{1, 1}}, {-1}, rows), Error);
  for (std::vector<float> test::MambaWeights::*numbers :
       {&test::MambaWeights::bias, &test::MambaWeights::skip, &test::MambaWeights::decay}) {
    MambaLayer other(*backend, shape, 2);
    (other.weights.*numbers).pop_back();
    EXPECT_THROW(run_step(*backend, other, {{1, 1}}, {0}, rows), Error);
  }
}

}  // namespace
}  // namespace minfer
