// Gated short convolutions on the CPU backend: against double precision, in pieces of any size, in slots of any content.
#include <limits>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/short_conv_steps.h"

namespace minfer {
namespace {

using test::DeviceArray;
using test::GuardedTensor;
using test::SequenceShape;
using test::ShortConvLayer;

/// States that hold NaN until something is written.
DeviceArray<float> poisoned_states(Backend& backend, const ShortConvLayer& layer, int32_t num_slots) {
  const auto size = static_cast<size_t>(num_slots * layer.state_size());
  return {backend, std::vector<float>(size, std::numeric_limits<float>::quiet_NaN())};
}

/// Runs a step of sequences in these slots; x [tokens, 3 channels].
std::vector<float> run_step(Backend& backend, const ShortConvLayer& layer, const RecurrentLayer& states,
                            const std::vector<SequenceShape>& sequences, const std::vector<int32_t>& slots,
                            const std::vector<float>& x) {
  const test::PagedBatch paged(backend, sequences, 16, 1);
  const DeviceArray<int32_t> device_slots(backend, slots);
  ForwardBatch batch = paged.batch();
  batch.state_slots = device_slots.data();
  const GuardedTensor in(backend, batch.num_tokens, 3 * layer.channels, x),
      out(backend, batch.num_tokens, layer.channels);
  backend.short_conv(0, batch,
                     {.x = in.tensor(),
                      .weight = {.data = layer.weight.data(), .rows = layer.size, .cols = layer.channels},
                      .bias = layer.bias.empty() ? Weight{} : test::load_vector(backend, layer.bias),
                      .state = states,
                      .out = out.tensor()});
  EXPECT_TRUE(in.intact() && out.intact()) << layer.text();
  EXPECT_EQ(in.values(), x);
  return out.values();
}

TEST(ShortConv, MatchesTheReferenceFromStepToStep) {
  const auto backend = make_cpu_backend(2);
  for (const ShortConvLayer& layer : test::short_conv_layers()) {
    const DeviceArray<float> memory = poisoned_states(*backend, layer, 5);
    const RecurrentLayer states{.conv = memory.data(), .num_slots = 5};
    const std::vector<int32_t> slots{3, 0, 4};
    test::expect_short_conv_reference(
        layer, {{5, 1, 2}, {1, 1, 70}, {2, 17, 1}}, 1e-12,
        [&](const std::vector<SequenceShape>& sequences, const std::vector<float>& x) {
          return run_step(*backend, layer, states, sequences, slots, x);
        });
    test::expect_short_conv_states(slots, layer, memory.values());
  }
}

/// One sequence in pieces, behind one that begins in each step, on one and two threads: the same bits as all at once.
TEST(ShortConv, BitsDependOnNeitherPiecesNorNeighboursNorThreads) {
  constexpr int32_t kAllTokens = 70;
  for (const ShortConvLayer& layer : test::short_conv_layers()) {
    const int64_t row = 3 * layer.channels;
    const std::vector<float> x = test::normal_values(kAllTokens * row, 1);
    std::vector<float> expected;
    for (const int32_t threads : {1, 2}) {
      const auto backend = make_cpu_backend(threads);
      for (const int32_t piece : {kAllTokens, 1, 2, 7, 64}) {
        const DeviceArray<float> memory = poisoned_states(*backend, layer, 2);
        const RecurrentLayer states{.conv = memory.data(), .num_slots = 2};
        std::vector<float> all;
        for (int32_t first = 0; first < kAllTokens; first += piece) {
          const int32_t count = std::min(piece, kAllTokens - first);
          std::vector<float> of_step(x.begin(), x.begin() + 2 * row);
          of_step.insert(of_step.end(), x.begin() + first * row, x.begin() + (first + count) * row);
          const std::vector<float> out =
              run_step(*backend, layer, states, {{2, 2}, {first + count, count}}, {0, 1}, of_step);
          all.insert(all.end(), out.begin() + 2 * layer.channels, out.end());
        }
        if (expected.empty()) expected = all;
        EXPECT_EQ(all, expected) << layer.text() << ", pieces of " << piece;
      }
    }
  }
}

TEST(ShortConv, RefusesWhatDoesNotFit) {
  const auto backend = make_cpu_backend(1);
  const auto refuses = [&](const ShortConvLayer& layer, int64_t columns, int32_t slot) {
    const DeviceArray<float> memory = poisoned_states(*backend, layer, 2);
    EXPECT_THROW(run_step(*backend, layer, {.conv = memory.data(), .num_slots = 2}, {{1, 1}}, {slot},
                          std::vector<float>(static_cast<size_t>(columns))),
                 Error)
        << layer.text();
  };
  refuses({4, 3, false}, 12, 2);
  refuses({4, 3, false}, 12, -1);
  refuses({4, 1, false}, 12, 0);
  refuses({4, 17, false}, 12, 0);
  ShortConvLayer layer(4, 3, true);
  layer.bias.pop_back();
  refuses(layer, 12, 0);
}

}  // namespace
}  // namespace minfer
