// Gated short convolutions on CUDA: against double precision, from step to step, in slots of any content and beside padding.
#include <limits>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cuda/delta/delta_ops.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_paged_batch.h"
#include "tests/support/rounding_limit.h"
#include "tests/support/short_conv_steps.h"

namespace minfer {
namespace {

using test::CudaArray;
using test::CudaSequence;
using test::CudaTensor;
using test::SequenceShape;
using test::ShortConvLayer;

/// A layer's weights on the device, and states that hold NaN until something is written.
struct CudaShortConv {
  CudaShortConv(const ShortConvLayer& of, int32_t num_slots)
      : layer(of),
        weight(of.weight),
        bias(of.bias.empty() ? std::vector<float>(1) : of.bias),
        memory(std::vector<float>(static_cast<size_t>(num_slots * of.state_size()),
                                  std::numeric_limits<float>::quiet_NaN())),
        states{.conv = memory.data(), .num_slots = num_slots} {}

  ShortConvArgs args(const Tensor& x, const Tensor& out) const {
    const Weight of_bias{.data = bias.data(), .dtype = DType::f32, .rows = 1, .cols = layer.channels};
    return {
        .x = x,
        .weight = {.data = weight.data(), .dtype = DType::f32, .rows = layer.size, .cols = layer.channels},
        .bias = layer.bias.empty() ? Weight{} : of_bias,
        .state = states,
        .out = out};
  }

  ShortConvLayer layer;
  CudaArray<float> weight, bias, memory;
  RecurrentLayer states;
};

/// Runs a step of a batch, its sequences in these slots; x [tokens, 3 channels].
std::vector<float> run_batch(const CudaShortConv& conv, ForwardBatch batch, const std::vector<int32_t>& slots,
                             const std::vector<float>& x, DType dtype) {
  const CudaArray<int32_t> device_slots(slots);
  batch.state_slots = device_slots.data();
  const CudaTensor in(DType::f32, batch.num_tokens, 3 * conv.layer.channels, x),
      out(dtype, batch.num_tokens, conv.layer.channels);
  const test::CudaRun run;
  cuda::Launch launch = run.launch();
  cuda::short_conv(launch, batch, conv.args(in.tensor(), out.tensor()));
  run.wait();
  EXPECT_TRUE(in.intact() && out.intact()) << conv.layer.text();
  return out.values();
}

std::vector<float> run_step(const CudaShortConv& conv, const std::vector<SequenceShape>& shapes,
                            const std::vector<int32_t>& slots, const std::vector<float>& x,
                            DType dtype = DType::f32) {
  std::vector<CudaSequence> sequences;
  for (const SequenceShape& shape : shapes)
    sequences.push_back({shape.context, shape.queries});
  const test::CudaPagedBatch batch(sequences, 0, 16, 1);
  return run_batch(conv, batch.batch(), slots, x, dtype);
}

class CudaShortConvs : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaShortConvs, MatchTheReferenceFromStepToStep) {
  // Among products of four normal numbers, a single one may be most of the sum of squares: its rounding to bf16 alone is up to 1.5e-5.
  constexpr double kOfOneValue = 3.0;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const ShortConvLayer& layer : test::short_conv_layers()) {
      const CudaShortConv conv(layer, 5);
      const std::vector<int32_t> slots{3, 0, 4};
      test::expect_short_conv_reference(
          layer, {{5, 1, 2}, {1, 1, 1}, {1, 1, 70}, {2, 17, 1}, {1, 1, 1}, {16, 8, 7}, {9, 33, 1}},
          kOfOneValue * test::rounding_limit(dtype),
          [&](const std::vector<SequenceShape>& sequences, const std::vector<float>& x) {
            return run_step(conv, sequences, slots, x, dtype);
          });
      test::expect_short_conv_states(slots, layer, conv.memory.values());
    }
  }
}

/// More sequences than the search for a token's sequence has threads.
TEST_F(CudaShortConvs, MatchTheReferenceForManySequences) {
  constexpr int32_t kSequences = 301;
  const CudaShortConv conv({96, 3, false}, kSequences + 1);
  std::vector<int32_t> slots, ones(kSequences, 1), mixed;
  for (int32_t s = 0; s < kSequences; ++s) {
    slots.push_back((s * 31 + 7) % (kSequences + 1));
    mixed.push_back(s < 200 ? 1 : 1 + s % 9);
  }
  test::expect_short_conv_reference(
      conv.layer, {ones, mixed, ones}, 1e-12,
      [&](const std::vector<SequenceShape>& sequences, const std::vector<float>& x) {
        return run_step(conv, sequences, slots, x);
      });
  test::expect_short_conv_states(slots, conv.layer, conv.memory.values());
}

/// The padding of graphs: sequences of one token each without a slot, whose rows become zeros.
TEST_F(CudaShortConvs, PaddingHasNoState) {
  for (const ShortConvLayer& layer : test::short_conv_layers()) {
    const CudaShortConv alone(layer, 4), padded(layer, 4);
    const int64_t row = 3 * layer.channels;
    const std::vector<float> x = test::normal_values(5 * row, 1);
    const std::vector<float> expected =
        run_step(alone, {{1, 1}, {1, 1}}, {2, 1}, {x.begin(), x.begin() + 2 * row});
    const test::CudaPagedBatch paged({{1, 1}, {1, 1}, {0, 1}, {0, 1}, {0, 1}}, 0, 16, 1);
    std::vector<float> found = run_batch(padded, paged.batch(), {2, 1, -1, -1, 4}, x, DType::f32);
    for (int64_t i = 2 * layer.channels; i < std::ssize(found); ++i)
      EXPECT_EQ(found[static_cast<size_t>(i)], 0.0f) << layer.text();
    found.resize(expected.size());
    EXPECT_EQ(found, expected) << layer.text();
    test::expect_short_conv_states({2, 1}, layer, padded.memory.values());
  }
}

TEST_F(CudaShortConvs, RefuseWhatDoesNotFit) {
  const std::vector<float> x(12);
  for (const int64_t inputs : {1, 17}) {
    const CudaShortConv conv({4, inputs, false}, 2);
    EXPECT_THROW(run_step(conv, {{1, 1}}, {0}, x), Error) << inputs;
  }
  const CudaShortConv conv({4, 3, false}, 2);
  const CudaTensor in(DType::f32, 1, 8, std::vector<float>(8)), out(DType::f32, 1, 4);
  const test::CudaPagedBatch batch({{1, 1}}, 0, 16, 1);
  const test::CudaRun run;
  cuda::Launch launch = run.launch();
  EXPECT_THROW(cuda::short_conv(launch, batch.batch(), conv.args(in.tensor(), out.tensor())), Error)
      << "two parts";
}

}  // namespace
}  // namespace minfer
