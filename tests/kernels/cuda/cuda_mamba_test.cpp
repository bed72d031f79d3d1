// Mamba-2 on CUDA: against double precision, from step to step, in slots of any content and beside padding.
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cuda/delta/delta_ops.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_paged_batch.h"
#include "tests/support/mamba_steps.h"

namespace minfer {
namespace {

using test::CudaArray;
using test::CudaSequence;
using test::CudaTensor;
using test::MambaOutputs;
using test::rows_of;
using test::SequenceShape;
using test::text_of;

constexpr double kLimit = 1e-11;

std::vector<float> unwritten(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN());
}

/// A layer's weights, and memory for states that holds NaN until something is written.
struct CudaMambaLayer {
  CudaMambaLayer(const DeltaNetShape& shape, int32_t num_slots)
      : weights(shape),
        conv(weights.conv),
        bias(weights.bias),
        dt_bias(weights.dt_bias),
        decay(weights.decay),
        skip(weights.skip),
        conv_states(unwritten(num_slots * shape.conv_state())),
        scan_states(unwritten(num_slots * shape.delta_state())),
        states{conv_states.data(), scan_states.data(), num_slots} {}

  test::MambaWeights weights;
  CudaArray<float> conv, bias, dt_bias, decay, skip, conv_states, scan_states;
  RecurrentLayer states;
};

/// A step on device tensors, with both ops on one stream.
class CudaMambaStep {
 public:
  CudaMambaStep(const CudaMambaLayer& layer, const ForwardBatch& batch, const std::vector<int32_t>& slots,
                const std::vector<float>& rows)
      : layer_(layer),
        batch_(batch),
        slots_(slots),
        rows_(DType::f32, batch.num_tokens, test::mamba_columns(shape()), rows),
        xbc_(DType::f32, batch.num_tokens, shape().channels()),
        values_(DType::f32, batch.num_tokens, shape().value_columns()) {
    batch_.state_slots = slots_.data();
  }

  void launch(cuda::Launch launch) const {
    const int64_t inner = shape().value_columns(), channels = shape().channels();
    cuda::delta_conv(launch, batch_,
                     {.x = columns(inner, channels),
                      .shape = shape(),
                      .weight = weight(layer_.conv, shape().conv_size, channels),
                      .state = layer_.states,
                      .out = xbc_.tensor(),
                      .bias = weight(layer_.bias, 1, channels),
                      .norms_heads = false});
    cuda::mamba_scan(launch, batch_,
                     {.xbc = xbc_.tensor(),
                      .dt = columns(inner + channels, shape().value_heads),
                      .gate = columns(0, inner),
                      .shape = shape(),
                      .dt_bias = weight(layer_.dt_bias, 1, shape().value_heads),
                      .decay = weight(layer_.decay, 1, shape().value_heads),
                      .skip = weight(layer_.skip, 1, shape().value_heads),
                      .state = layer_.states,
                      .out = values_.tensor()});
  }
  MambaOutputs outputs() const {
    EXPECT_TRUE(rows_.intact() && xbc_.intact() && values_.intact()) << text_of(shape());
    return {xbc_.values(), values_.values()};
  }

 private:
  const DeltaNetShape& shape() const { return layer_.weights.shape; }
  Tensor columns(int64_t first, int64_t count) const {
    Tensor tensor = rows_.tensor();
    tensor.data = tensor.f32() + first;
    tensor.cols = count;
    return tensor;
  }
  static Weight weight(const CudaArray<float>& of, int64_t rows, int64_t cols) {
    return {.data = of.data(), .dtype = DType::f32, .rows = rows, .cols = cols};
  }

  const CudaMambaLayer& layer_;
  ForwardBatch batch_;
  CudaArray<int32_t> slots_;
  CudaTensor rows_, xbc_, values_;
};

MambaOutputs run_step(const CudaMambaLayer& layer, const std::vector<SequenceShape>& shapes,
                      const std::vector<int32_t>& slots, const std::vector<float>& rows) {
  std::vector<CudaSequence> sequences;
  for (const SequenceShape& shape : shapes)
    sequences.push_back({shape.context, shape.queries});
  const test::CudaPagedBatch batch(sequences, 0, 16, 1);
  const CudaMambaStep step(layer, batch.batch(), slots, rows);
  const test::CudaRun run;
  step.launch(run.launch());
  run.wait();
  return step.outputs();
}

class CudaMamba : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaMamba, MatchesTheReferenceFromStepToStep) {
  for (const DeltaNetShape& shape : test::kMambaShapes) {
    const CudaMambaLayer layer(shape, 5);
    const std::vector<int32_t> slots{3, 0, 4};
    test::expect_mamba_reference(
        layer.weights, {{5, 1, 2}, {1, 1, 1}, {1, 1, 70}, {2, 3, 1}, {1, 1, 1}, {16, 8, 17}, {9, 33, 1}},
        kLimit, [&](const std::vector<SequenceShape>& sequences, const std::vector<float>& rows) {
          return run_step(layer, sequences, slots, rows);
        });
    test::expect_states_of(slots, shape, layer.conv_states.values(), layer.scan_states.values());
  }
}

TEST_F(CudaMamba, MatchesTheReferenceForManySequences) {
  const DeltaNetShape shape{
      .key_heads = 1, .value_heads = 4, .key_size = 128, .value_size = 64, .conv_size = 4};
  constexpr int32_t kSequences = 77;
  const CudaMambaLayer layer(shape, kSequences + 1);
  std::vector<int32_t> slots, ones(kSequences, 1), mixed;
  for (int32_t s = 0; s < kSequences; ++s) {
    slots.push_back((s * 31 + 7) % (kSequences + 1));
    mixed.push_back(s < 60 ? 1 : 1 + s % 9);
  }
  test::expect_mamba_reference(
      layer.weights, {ones, mixed, ones}, kLimit,
      [&](const std::vector<SequenceShape>& sequences, const std::vector<float>& rows) {
        return run_step(layer, sequences, slots, rows);
      });
  test::expect_states_of(slots, shape, layer.conv_states.values(), layer.scan_states.values());
}

/// One sequence in pieces, behind one that begins in each step: the same bits as all at once.
TEST_F(CudaMamba, BitsDependOnNeitherPiecesNorNeighbours) {
  constexpr int32_t kTokens = 70;
  for (const DeltaNetShape& shape : test::kMambaShapes) {
    const int64_t columns = test::mamba_columns(shape);
    const std::vector<float> rows = test::normal_values(kTokens * columns, 1);
    std::vector<float> expected;
    for (const int32_t piece : {kTokens, 1, 3, 16}) {
      const CudaMambaLayer layer(shape, 2);
      std::vector<float> all;
      for (int32_t first = 0; first < kTokens; first += piece) {
        const int32_t count = std::min(piece, kTokens - first);
        std::vector<float> of_step = rows_of(rows, columns, 0, 2);
        const std::vector<float> own = rows_of(rows, columns, first, count);
        of_step.insert(of_step.end(), own.begin(), own.end());
        const MambaOutputs out = run_step(layer, {{2, 2}, {first + count, count}}, {0, 1}, of_step);
        all.insert(all.end(), out.values.begin() + 2 * shape.value_columns(), out.values.end());
      }
      if (expected.empty()) expected = all;
      EXPECT_EQ(all, expected) << text_of(shape) << ", pieces of " << piece;
    }
  }
}

/// The padding of graphs: sequences of one token each without a slot of the state, whose rows become zeros.
TEST_F(CudaMamba, PaddingHasNoState) {
  for (const DeltaNetShape& shape : test::kMambaShapes) {
    const CudaMambaLayer alone(shape, 4), padded(shape, 4);
    const int64_t columns = test::mamba_columns(shape);
    const std::vector<float> rows = test::normal_values(5 * columns, 1);
    const MambaOutputs expected = run_step(alone, {{1, 1}, {1, 1}}, {2, 1}, rows_of(rows, columns, 0, 2));
    const test::CudaPagedBatch paged({{1, 1}, {1, 1}, {0, 1}, {0, 1}, {0, 1}}, 0, 16, 1);
    const CudaMambaStep step(padded, paged.batch(), {2, 1, -1, -1, 4}, rows);
    const test::CudaRun run;
    step.launch(run.launch());
    run.wait();
    const MambaOutputs found = step.outputs();
    const int64_t inner = shape.value_columns();
    EXPECT_EQ(rows_of(found.xbc, shape.channels(), 0, 2), expected.xbc) << text_of(shape);
    EXPECT_EQ(rows_of(found.values, inner, 0, 2), expected.values) << text_of(shape);
    for (const float value : rows_of(found.xbc, shape.channels(), 2, 3))
      EXPECT_TRUE(std::isnan(value)) << text_of(shape);
    for (const float value : rows_of(found.values, inner, 2, 3))
      EXPECT_EQ(value, 0.0f) << text_of(shape);
    test::expect_states_of({2, 1}, shape, padded.conv_states.values(), padded.scan_states.values());
    EXPECT_EQ(rows_of(padded.scan_states.values(), shape.delta_state(), 1, 2),
              rows_of(alone.scan_states.values(), shape.delta_state(), 1, 2));
  }
}

/// Steps that follow each other on the device give the same results as with the host between them: kernels read states early.
TEST_F(CudaMamba, StepsMayFollowEachOtherAtOnce) {
  const DeltaNetShape shape{
      .key_heads = 1, .value_heads = 16, .key_size = 128, .value_size = 64, .conv_size = 4};
  constexpr int32_t kSequences = 16, kSteps = 12;
  const std::vector<float> rows = test::normal_values(kSequences * test::mamba_columns(shape), 1);
  std::vector<int32_t> slots(kSequences);
  for (int32_t s = 0; s < kSequences; ++s)
    slots[static_cast<size_t>(s)] = kSequences - 1 - s;
  std::optional<MambaOutputs> expected;
  for (const bool waits : {true, false}) {
    const CudaMambaLayer layer(shape, kSequences);
    const test::CudaPagedBatch first(std::vector<CudaSequence>(kSequences, {1, 1}), kSequences, 16, 1,
                                     kSteps);
    const test::CudaPagedBatch later(std::vector<CudaSequence>(kSequences, {2, 1}), kSequences, 16, 1,
                                     kSteps);
    const CudaMambaStep begin(layer, first.batch(), slots, rows), next(layer, later.batch(), slots, rows);
    const test::CudaRun run;
    begin.launch(run.launch());
    for (int32_t i = 1; i < kSteps; ++i) {
      if (waits) run.wait();
      next.launch(run.launch());
    }
    run.wait();
    const MambaOutputs found = next.outputs();
    if (expected) {
      EXPECT_EQ(found.values, expected->values);
    }
    expected = found;
  }
}

TEST_F(CudaMamba, RefusesWhatDoesNotFit) {
  CudaMambaLayer layer(test::kMambaShapes[1], 2);
  layer.weights.shape.key_size = 257;
  const std::vector<float> rows(static_cast<size_t>(test::mamba_columns(layer.weights.shape)));
  EXPECT_THROW(run_step(layer, {{1, 1}}, {0}, rows), Error) << "a state of 257 rows";
  layer.weights.shape = test::kMambaShapes[1];
  layer.weights.shape.value_heads = 5;
  EXPECT_THROW(run_step(layer, {{1, 1}}, {0}, rows), Error) << "groups of two heads and a half";
}

}  // namespace
}  // namespace minfer
