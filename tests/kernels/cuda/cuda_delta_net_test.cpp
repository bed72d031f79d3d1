// Gated delta nets and head gates on CUDA: against double precision, from step to step, in slots of any content and beside padding.
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cuda/delta/delta_ops.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_paged_batch.h"
#include "tests/support/cuda/fp8_tensor.h"
#include "tests/support/delta_steps.h"
#include "tests/support/rounding_limit.h"

namespace minfer {
namespace {

using reference::Matrix;
using test::CudaArray;
using test::CudaSequence;
using test::CudaTensor;
using test::DeltaOutputs;
using test::rows_of;
using test::SequenceShape;
using test::text_of;

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
/// Chunks of tokens are multiplied with operands that have 16 bits of mantissa.
constexpr test::DeltaLimits kLimits{.conv = 1e-12, .rule = 1e-9};
/// Heads that chunks take, and such with decays of rows.
const std::vector<DeltaNetShape> kAlignedShapes{
    {.key_heads = 1, .value_heads = 2, .key_size = 128, .value_size = 128, .conv_size = 4},
    {.key_heads = 2,
     .value_heads = 2,
     .key_size = 128,
     .value_size = 128,
     .conv_size = 4,
     .decays_rows = true}};

std::vector<float> nans(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count), kNotANumber);
}

/// A layer's weights, and memory for states that holds NaN until something is written.
struct CudaDeltaLayer {
  CudaDeltaLayer(const DeltaNetShape& shape, int32_t num_slots)
      : weights(shape),
        conv(weights.conv),
        dt_bias(weights.dt_bias),
        decay(weights.decay),
        conv_states(nans(num_slots * shape.conv_state())),
        delta_states(nans(num_slots * shape.delta_state())),
        states{conv_states.data(), delta_states.data(), num_slots} {}

  test::DeltaWeights weights;
  CudaArray<float> conv, dt_bias, decay, conv_states, delta_states;
  RecurrentLayer states;
};

/// A step on device tensors, with all its ops on one stream.
class CudaDeltaStep {
 public:
  CudaDeltaStep(const CudaDeltaLayer& layer, const ForwardBatch& batch, const std::vector<int32_t>& slots,
                const std::vector<float>& x, const std::vector<float>& gates)
      : layer_(layer),
        batch_(batch),
        slots_(slots),
        x_(DType::f32, batch.num_tokens, shape().channels(), x),
        gates_(DType::f32, batch.num_tokens, test::gates_of(shape()), gates),
        qkv_(DType::f32, batch.num_tokens, shape().channels()),
        values_(DType::f32, batch.num_tokens, shape().value_columns()) {
    batch_.state_slots = slots_.data();
  }

  void launch(cuda::Launch launch) const {
    const auto vector = [&](const CudaArray<float>& of, int64_t size) {
      return Weight{.data = of.data(), .dtype = DType::f32, .rows = 1, .cols = size};
    };
    cuda::delta_conv(launch, batch_,
                     {.x = x_.tensor(),
                      .shape = shape(),
                      .weight = {.data = layer_.conv.data(),
                                 .dtype = DType::f32,
                                 .rows = shape().conv_size,
                                 .cols = shape().channels()},
                      .state = layer_.states,
                      .out = qkv_.tensor()});
    DeltaRuleArgs rule{.qkv = qkv_.tensor(),
                       .gates = {},
                       .shape = shape(),
                       .dt_bias = vector(layer_.dt_bias, static_cast<int64_t>(layer_.weights.dt_bias.size())),
                       .decay = vector(layer_.decay, shape().value_heads),
                       .state = layer_.states,
                       .out = values_.tensor()};
    test::set_gates(rule, gates_.tensor());
    cuda::delta_rule(launch, batch_, rule);
  }
  DeltaOutputs outputs() const {
    EXPECT_TRUE(x_.intact() && gates_.intact() && qkv_.intact() && values_.intact()) << text_of(shape());
    return {qkv_.values(), values_.values()};
  }

 private:
  const DeltaNetShape& shape() const { return layer_.weights.shape; }

  const CudaDeltaLayer& layer_;
  ForwardBatch batch_;
  CudaArray<int32_t> slots_;
  CudaTensor x_, gates_, qkv_, values_;
};

DeltaOutputs run_step(const CudaDeltaLayer& layer, const std::vector<CudaSequence>& sequences,
                      const std::vector<int32_t>& slots, const std::vector<float>& x,
                      const std::vector<float>& gates) {
  const test::CudaPagedBatch batch(sequences, 0, 16, 1);
  const CudaDeltaStep step(layer, batch.batch(), slots, x, gates);
  const test::CudaRun run;
  step.launch(run.launch());
  run.wait();
  return step.outputs();
}

std::vector<CudaSequence> cuda_sequences(const std::vector<SequenceShape>& shapes) {
  std::vector<CudaSequence> sequences;
  for (const SequenceShape& shape : shapes)
    sequences.push_back({shape.context, shape.queries});
  return sequences;
}

class CudaDeltaNet : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaDeltaNet, MatchesTheReferenceFromStepToStep) {
  for (const DeltaNetShape& shape : test::kDeltaShapes) {
    const CudaDeltaLayer layer(shape, 5);
    const std::vector<int32_t> slots{3, 0, 4};
    test::expect_delta_reference(
        layer.weights, {{5, 1, 2}, {1, 1, 1}, {1, 1, 70}, {2, 3, 1}, {1, 1, 1}, {16, 8, 7}, {9, 33, 1}},
        kLimits, [&](const std::vector<SequenceShape>& sequences, const auto& x, const auto& gates) {
          return run_step(layer, cuda_sequences(sequences), slots, x, gates);
        });
    test::expect_states_of(slots, shape, layer.conv_states.values(), layer.delta_states.values());
  }
}

/// As many sequences as the search for a token's sequence has lanes, and more.
TEST_F(CudaDeltaNet, MatchesTheReferenceForManySequences) {
  for (const DeltaNetShape& shape : kAlignedShapes) {
    constexpr int32_t kSequences = 77;
    const CudaDeltaLayer layer(shape, kSequences + 1);
    std::vector<int32_t> slots, ones(kSequences, 1), mixed;
    for (int32_t s = 0; s < kSequences; ++s) {
      slots.push_back((s * 31 + 7) % (kSequences + 1));
      mixed.push_back(s < 60 ? 1 : 1 + s % 9);
    }
    test::expect_delta_reference(
        layer.weights, {ones, mixed, ones}, kLimits,
        [&](const std::vector<SequenceShape>& sequences, const auto& x, const auto& gates) {
          return run_step(layer, cuda_sequences(sequences), slots, x, gates);
        });
    test::expect_states_of(slots, shape, layer.conv_states.values(), layer.delta_states.values());
  }
}

/// A long prompt, whose states go through many steps of rounding.
TEST_F(CudaDeltaNet, MatchesTheReferenceInALongPrompt) {
  for (const DeltaNetShape& shape : kAlignedShapes) {
    const CudaDeltaLayer layer(shape, 1);
    test::expect_delta_reference(
        layer.weights, {{1500}, {1}, {431}}, kLimits,
        [&](const std::vector<SequenceShape>& sequences, const auto& x, const auto& gates) {
          return run_step(layer, cuda_sequences(sequences), {0}, x, gates);
        });
  }
}

/// Keys that are nearly alike and hardly forgotten: each token corrects the remains of all tokens before it.
TEST_F(CudaDeltaNet, MatchesTheReferenceWhereKeysAreAlike) {
  for (const DeltaNetShape& shape : kAlignedShapes) {
    for (const int32_t tokens : {15, 16, 50, 200}) {
      const CudaDeltaLayer layer(shape, 1);
      const std::vector<float> row = test::normal_values(shape.channels(), 1);
      std::vector<float> x = test::normal_values(tokens * shape.channels(), 2, 0.05f), gates;
      for (size_t i = 0; i < x.size(); ++i)
        x[i] += row[i % row.size()];
      for (int32_t t = 0; t < tokens; ++t) {
        gates.insert(gates.end(), static_cast<size_t>(shape.value_heads), 5.0f);
        gates.insert(gates.end(), static_cast<size_t>(shape.alphas()), -8.0f);
      }
      reference::DeltaState state;
      const Matrix qkv = reference::delta_conv(reference::to_matrix(x, tokens, shape.channels()), shape,
                                               layer.weights.conv, state);
      const Matrix expected =
          reference::delta_rule(qkv, reference::to_matrix(gates, tokens, test::gates_of(shape)), shape,
                                layer.weights.dt_bias, layer.weights.decay, state);
      const DeltaOutputs out = run_step(layer, {{tokens, tokens}}, {0}, x, gates);
      EXPECT_LE(test::nmse(out.values, expected.data), 1e-7) << text_of(shape) << ", " << tokens;
      EXPECT_LE(test::nmse(layer.delta_states.values(), state.delta), 1e-7)
          << text_of(shape) << ", " << tokens;
    }
  }
}

/// The padding of graphs: sequences of one token each, or none, with tokens of no sequence behind them.
TEST_F(CudaDeltaNet, PaddingHasNoState) {
  for (const DeltaNetShape& shape : test::kDeltaShapes) {
    for (const int32_t padding_queries : {1, 0}) {
      const int64_t channels = shape.channels(), num_gates = test::gates_of(shape);
      const std::vector<int32_t> queries =
          padding_queries == 1 ? std::vector<int32_t>{1, 1} : std::vector<int32_t>{6, 2};
      std::vector<CudaSequence> real{{queries[0], queries[0]}, {queries[1], queries[1]}};
      const int64_t tokens = queries[0] + queries[1], padding = 3;
      const std::vector<float> x = test::normal_values((tokens + padding) * channels, 1),
                               gates = test::normal_values((tokens + padding) * num_gates, 2);
      const CudaDeltaLayer alone(shape, 4), padded(shape, 4);
      const DeltaOutputs expected = run_step(alone, real, {2, 1}, rows_of(x, channels, 0, tokens),
                                             rows_of(gates, num_gates, 0, tokens));
      // Without queries the padding's tokens stand behind the last sequence.
      std::vector<CudaSequence> all = real;
      if (padding_queries == 1) all.insert(all.end(), 3, {0, 1});
      const test::CudaPagedBatch paged(all, 0, 16, 1);
      ForwardBatch batch = paged.batch();
      std::vector<int32_t> query_start{0, queries[0], queries[0] + queries[1]}, slots{2, 1, -1, -1, 4};
      for (int32_t i = 0; i < 3; ++i)
        query_start.push_back(query_start.back() + padding_queries);
      const CudaArray<int32_t> starts(query_start);
      batch.query_start = starts.data();
      batch.num_sequences = 5;
      batch.num_tokens = static_cast<int32_t>(tokens + padding);
      std::vector<int32_t> positions{};
      for (const int32_t count : queries) {
        for (int32_t i = 0; i < count; ++i)
          positions.push_back(i);
      }
      positions.resize(static_cast<size_t>(tokens + padding), 0);
      const CudaArray<int32_t> device_positions(positions);
      batch.positions = device_positions.data();
      const CudaDeltaStep step(padded, batch, slots, x, gates);
      const test::CudaRun run;
      step.launch(run.launch());
      run.wait();
      const DeltaOutputs found = step.outputs();
      EXPECT_EQ(rows_of(found.qkv, channels, 0, tokens), expected.qkv) << text_of(shape);
      EXPECT_EQ(rows_of(found.values, shape.value_columns(), 0, tokens), expected.values) << text_of(shape);
      for (const float value : rows_of(found.qkv, channels, tokens, padding))
        EXPECT_TRUE(std::isnan(value)) << text_of(shape);
      for (const float value : rows_of(found.values, shape.value_columns(), tokens, padding)) {
        if (padding_queries == 1) {
          EXPECT_EQ(value, 0.0f) << text_of(shape);
        } else {
          EXPECT_TRUE(std::isnan(value)) << text_of(shape);
        }
      }
      test::expect_states_of({2, 1}, shape, padded.conv_states.values(), padded.delta_states.values());
      EXPECT_EQ(rows_of(padded.delta_states.values(), shape.delta_state(), 1, 2),
                rows_of(alone.delta_states.values(), shape.delta_state(), 1, 2));
    }
  }
}

/// Steps that follow each other on the device give the same results as with the host between them: kernels read states early.
TEST_F(CudaDeltaNet, StepsMayFollowEachOtherAtOnce) {
  constexpr int32_t kSequences = 16, kSteps = 12;
  for (DeltaNetShape shape : kAlignedShapes) {
    shape.key_heads *= 4;
    shape.value_heads *= 4;
    const std::vector<float> x = test::normal_values(kSequences * shape.channels(), 1),
                             gates = test::normal_values(kSequences * test::gates_of(shape), 2);
    std::vector<int32_t> slots(kSequences);
    for (int32_t s = 0; s < kSequences; ++s)
      slots[static_cast<size_t>(s)] = kSequences - 1 - s;
    std::optional<DeltaOutputs> expected;
    for (const bool waits : {true, false}) {
      const CudaDeltaLayer layer(shape, kSequences);
      const test::CudaPagedBatch first(std::vector<CudaSequence>(kSequences, {1, 1}), kSequences, 16, 1,
                                       kSteps);
      const test::CudaPagedBatch later(std::vector<CudaSequence>(kSequences, {2, 1}), kSequences, 16, 1,
                                       kSteps);
      const CudaDeltaStep begin(layer, first.batch(), slots, x, gates),
          next(layer, later.batch(), slots, x, gates);
      const test::CudaRun run;
      begin.launch(run.launch());
      for (int32_t i = 1; i < kSteps; ++i) {
        if (waits) run.wait();
        next.launch(run.launch());
      }
      run.wait();
      const DeltaOutputs found = next.outputs();
      if (expected) {
        EXPECT_EQ(found.values, expected->values);
      }
      expected = found;
    }
  }
}

TEST_F(CudaDeltaNet, LargeGatesNeitherOverflowNorForget) {
  for (const bool decays_rows : {false, true}) {
    const DeltaNetShape shape{.key_heads = 1,
                              .value_heads = 1,
                              .key_size = 4,
                              .value_size = 4,
                              .conv_size = 2,
                              .decays_rows = decays_rows};
    for (const float gate : {-1e4f, 1e4f}) {
      const CudaDeltaLayer layer(shape, 1);
      const std::vector<float> x = test::normal_values(3 * shape.channels(), 1, 50.0f);
      const DeltaOutputs out = run_step(
          layer, {{3, 3}}, {0}, x, std::vector<float>(static_cast<size_t>(3 * test::gates_of(shape)), gate));
      for (const float value : out.values)
        EXPECT_TRUE(std::isfinite(value));
    }
  }
}

TEST_F(CudaDeltaNet, RefusesWhatDoesNotFit) {
  const DeltaNetShape shape = test::kDeltaShapes[1];
  CudaDeltaLayer layer(shape, 2);
  const std::vector<float> x(static_cast<size_t>(shape.channels())), gates(8);
  layer.weights.shape.value_heads = 3;
  EXPECT_THROW(run_step(layer, {{1, 1}}, {0}, std::vector<float>(84), std::vector<float>(6)), Error)
      << "value heads of one and a half key heads";
  layer.weights.shape = shape;
  layer.weights.shape.decays_rows = true;
  EXPECT_THROW(run_step(layer, {{1, 1}}, {0}, x, std::vector<float>(4 + 4 * 12)), Error)
      << "alphas of another number than dt_bias has";
  layer.weights.shape = shape;
  layer.weights.shape.key_size = 257;
  EXPECT_THROW(run_step(layer, {{1, 1}}, {0}, std::vector<float>(4 * 257 + 48), gates), Error);
}

struct HeadGateRun {
  DType in, out;
  int64_t size;
  HeadGateArgs::Function function;
  bool has_norm;
};

/// The gates stand behind the heads of another tensor, as queries' gates do.
void expect_head_gate(const HeadGateRun& run) {
  constexpr int64_t kRows = 149, kHeads = 3;  // with few values, the rounding of one may be most of the error
  const int64_t cols = kHeads * run.size;
  const std::vector<float> x = test::rounded(test::normal_values(kRows * cols, 1), run.in);
  const std::vector<float> pairs = test::normal_values(kRows * 2 * cols, 2, 3.0f);
  const std::vector<float> norm = run.has_norm ? test::normal_values(run.size, 3) : std::vector<float>();
  Matrix gate(kRows, cols);
  for (int64_t i = 0; i < kRows * kHeads; ++i) {
    for (int64_t c = 0; c < run.size; ++c)
      gate.data[static_cast<size_t>(i * run.size + c)] =
          pairs[static_cast<size_t>((2 * i + 1) * run.size + c)];
  }
  const Matrix expected =
      reference::head_gate(reference::to_matrix(x, kRows, cols), gate, kHeads, run.function, norm, 1e-5);
  const CudaArray<float> device_norm(run.has_norm ? norm : std::vector<float>(1));
  const CudaTensor all(DType::f32, kRows, 2 * cols, pairs);
  Tensor gates = all.tensor();
  gates.data = gates.f32() + run.size;
  gates.cols -= run.size;
  const auto gate_heads = [&](const Tensor& from, const Tensor& to) {
    const test::CudaRun on;
    cuda::Launch launch = on.launch();
    cuda::head_gate(
        launch,
        {.x = from,
         .gate = gates,
         .heads = kHeads,
         .gate_stride = 2 * run.size,
         .function = run.function,
         .norm = run.has_norm ? Weight{.data = device_norm.data(), .rows = 1, .cols = run.size} : Weight{},
         .norm_eps = 1e-5f,
         .out = to});
    on.wait();
  };
  const std::string what = fmt::format("heads of {}, {} to {}{}", run.size, name(run.in), name(run.out),
                                       run.has_norm ? ", norm" : "");
  const CudaTensor in(run.in, kRows, cols, x);
  if (run.out == DType::fp8) {
    const test::Fp8Tensor out(kRows, cols);
    gate_heads(in.tensor(), out.tensor());
    EXPECT_LE(test::nmse(out.values(), expected.data), 1e-3) << what;
  } else {
    const CudaTensor out(run.out, kRows, cols);
    gate_heads(in.tensor(), out.tensor());
    EXPECT_LE(test::nmse(out.values(), expected.data), test::rounding_limit(run.out)) << what;
    EXPECT_TRUE(out.intact()) << what;
    if (run.in == run.out) {
      gate_heads(in.tensor(), in.tensor());
      EXPECT_EQ(in.values(), out.values()) << what << ", in place";
    }
  }
  EXPECT_TRUE(in.intact() && all.intact()) << what;
}

TEST_F(CudaDeltaNet, GatesOfHeadsMatchTheReference) {
  for (const int64_t size : {1, 12, 33, 64, 128, 256, 520}) {
    for (const DType in : {DType::f32, DType::bf16}) {
      for (const DType out : {DType::f32, DType::bf16, DType::fp8}) {
        if (out == DType::fp8 && size % 128 != 0) continue;
        for (const auto function : {HeadGateArgs::Function::sigmoid, HeadGateArgs::Function::silu,
                                    HeadGateArgs::Function::gelu_tanh}) {
          for (const bool has_norm : {false, true})
            expect_head_gate({in, out, size, function, has_norm});
        }
      }
    }
  }
}

TEST_F(CudaDeltaNet, GatesOfHeadsRefuseWhatDoesNotFit) {
  const CudaTensor tensor(DType::f32, 1, 12), half(DType::bf16, 1, 12);
  const test::Fp8Tensor fp8(1, 128);
  const test::CudaRun run;
  cuda::Launch launch = run.launch();
  const HeadGateArgs good{
      .x = tensor.tensor(), .gate = tensor.tensor(), .heads = 3, .gate_stride = 4, .out = tensor.tensor()};
  HeadGateArgs args = good;
  args.heads = 5;
  EXPECT_THROW(cuda::head_gate(launch, args), Error);
  args = good;
  args.gate_stride = 8;
  EXPECT_THROW(cuda::head_gate(launch, args), Error) << "gates that end before the last head's";
  args = good;
  args.gate = half.tensor();
  EXPECT_THROW(cuda::head_gate(launch, args), Error);
  const CudaTensor wide(DType::f32, 1, 128);
  args = {.x = wide.tensor(), .gate = wide.tensor(), .heads = 2, .gate_stride = 64, .out = fp8.tensor()};
  EXPECT_THROW(cuda::head_gate(launch, args), Error) << "heads of half a scale's columns";
}

}  // namespace
}  // namespace minfer
