#include "kernels/cpu/cpu_backend.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "kernels/cpu/lanes/vector_math.h"
#include "tests/reference/ops.h"
#include "tests/support/allocations.h"
#include "tests/support/isa_scope.h"
#include "tests/support/paged_batch.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::DeviceArray;
using test::GuardedTensor;

TEST(CpuBackend, SaysWhatItRunsOn) {
  const test::IsaScope scope("portable");
  const BackendInfo info = make_cpu_backend(3)->info();
  EXPECT_EQ(info.name, "cpu");
  EXPECT_EQ(info.threads, 3);
  EXPECT_EQ(info.activation_dtype, DType::f32);
  EXPECT_NE(info.device.find("portable"), std::string::npos) << info.device;
  EXPECT_GE(make_cpu_backend(0)->info().threads, 1);
}

TEST(CpuBackend, RefusesUnknownInstructionSetsAndNegativeThreads) {
  EXPECT_THROW(make_cpu_backend(-1), Error);
  const test::IsaScope scope("sse9");
  EXPECT_THROW(make_cpu_backend(1), Error);
}

TEST(CpuBackend, AllocatesAlignedMemoryOrNamesWhatFailed) {
  const auto backend = make_cpu_backend(1);
  const Buffer buffer = backend->allocate(100, "KV cache");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  EXPECT_EQ(buffer.bytes(), 100u);
  EXPECT_NE(backend->allocate(0, "nothing").data(), nullptr);
  try {
    backend->allocate(~size_t{0}, "KV cache");
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("KV cache"), std::string::npos);
  }
}

TEST(CpuBackend, WeightsStayWhereTheHostHasThem) {
  const auto backend = make_cpu_backend(1);
  const std::vector<float> values(12, 1.0f);
  const Weight weight = backend->load({"w", values.data(), DType::f32, 2, 3, 2});
  EXPECT_EQ(weight.data, values.data());
  EXPECT_EQ(weight.matrix_bytes(), 24u);
}

/// A decoding step's ops of one layer, without the weight products.
class Layer {
 public:
  explicit Layer(Backend& backend)
      : backend_(backend),
        batch_(backend, {{100, 1}, {300, 1}}, 16, 1),
        k_(backend, batch_, DType::f32, 2, 64),
        v_(backend, batch_, DType::f32, 2, 64),
        norm_(256, 1.0f),
        cos_sin_(backend, std::vector<float>(400 * 64, 0.5f)),
        x_(backend, 2, 256, test::normal_values(512, 1)),
        qkv_(backend, 2, 512, test::normal_values(1024, 2)),
        out_(backend, 2, 256) {
    for (size_t s = 0; s < 2; ++s) {
      const int64_t count = batch_.sequences()[s].context * 128;
      k_.store(batch_, s, test::normal_values(count, 3));
      v_.store(batch_, s, test::normal_values(count, 4));
    }
    k_.upload();
    v_.upload();
    rows_[1].temperature = 0.0f;
    rows_[0].top_k = 20;
    rows_[0].top_p = 0.9f;
  }

  void step(StepStamps* stamps, bool rows_come_later = false) {
    const KvLayer kv{k_.data(), v_.data(), DType::f32, batch_.num_blocks(), 16, 2, 64};
    StepArgs step{.sample_op = 9, .stamps = stamps};
    if (rows_come_later) {
      step.later_rows = 2;
    } else {
      step.rows = rows_;
    }
    backend_.launch_step(step, [&](const ForwardBatch&) { return forward(kv); });
    if (rows_come_later) backend_.launch_sampling(rows_);
    backend_.finish_step(tokens_);
  }
  const std::vector<SampledToken>& tokens() const { return tokens_; }

 private:
  Tensor forward(const KvLayer& kv) {
    backend_.norm(
        4,
        {.x = x_.tensor(), .weight = test::load_vector(backend_, norm_), .eps = 1e-5f, .out = out_.tensor()});
    RopeKvWriteArgs rope;
    rope.qkv = qkv_.tensor();
    rope.heads = 4;
    rope.rotary_size = 64;
    rope.cos_sin = cos_sin_.data();
    rope.kv = kv;
    backend_.rope_kv_write(7, batch_.batch(), rope);
    AttentionArgs attention;
    attention.qkv = qkv_.tensor();
    attention.heads = 4;
    attention.scale = 0.125f;
    attention.kv = kv;
    attention.num_sequences = 2;
    attention.out = out_.tensor();
    backend_.attention(5, batch_.batch(), attention);
    return x_.tensor();
  }

  Backend& backend_;
  test::PagedBatch batch_;
  test::PagedCache k_, v_;
  std::vector<float> norm_;
  DeviceArray<float> cos_sin_;
  GuardedTensor x_, qkv_, out_;
  std::vector<SamplingRow> rows_{2};
  std::vector<SampledToken> tokens_{2};
};

TEST(CpuBackend, StampsEveryOpInOrder) {
  const auto backend = make_cpu_backend(1);
  Layer layer(*backend);
  StepStamps stamps;
  const int64_t before = now_ns();
  layer.step(&stamps);
  ASSERT_EQ(stamps.ops.size(), 4u);
  const OpId expected[] = {4, 7, 5, 9};
  int64_t last = before;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(stamps.ops[i].op, expected[i]);
    EXPECT_GE(stamps.ops[i].begin_ns, last);
    last = stamps.ops[i].begin_ns;
  }
  EXPECT_GE(stamps.end_ns, last);
  EXPECT_LE(stamps.end_ns, now_ns());
  layer.step(nullptr);
  EXPECT_EQ(stamps.ops.size(), 4u) << "a step without stamps records nothing";
}

TEST(CpuBackend, RowsMayComeBehindTheForwardPass) {
  const auto backend = make_cpu_backend(1);
  Layer layer(*backend);
  layer.step(nullptr);
  const std::vector<SampledToken> expected = layer.tokens();
  StepStamps stamps;
  layer.step(&stamps, true);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(layer.tokens()[i].token, expected[i].token);
  ASSERT_EQ(stamps.ops.size(), 4u);
  EXPECT_EQ(stamps.ops[3].op, 9);
  EXPECT_LE(stamps.ops[2].begin_ns, stamps.ops[2].end_ns)
      << "the forward pass ends before the host comes back";
  EXPECT_LE(stamps.ops[2].end_ns, stamps.ops[3].launched_ns);
  EXPECT_LE(stamps.ops[3].begin_ns, stamps.end_ns);
}

TEST(CpuBackend, RefusesWhatComesBeforeTheRowsOfAStep) {
  const auto backend = make_cpu_backend(1);
  const std::vector<float> logits{1.0f, 3.0f, 2.0f};
  const auto forward = [&](const ForwardBatch&) {
    return Tensor{const_cast<float*>(logits.data()), DType::f32, 1, 3, 3};
  };
  std::vector<SamplingRow> rows(1);
  rows[0].temperature = 0.0f;
  std::vector<SampledToken> out(1);
  EXPECT_THROW(backend->launch_sampling(rows), Error) << "no step";
  backend->launch_step({.later_rows = 1}, forward);
  EXPECT_THROW(backend->launch_step({.rows = rows}, forward), Error);
  EXPECT_THROW(backend->finish_step(out), Error);
  EXPECT_THROW(backend->launch_sampling({}), Error) << "one row";
  backend->launch_sampling(rows);
  EXPECT_THROW(backend->launch_sampling(rows), Error) << "they are drawn";
  backend->finish_step(out);
  EXPECT_EQ(out[0].token, 1);
}

TEST(CpuBackend, AStepOfAKnownShapeAllocatesNothing) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "allocations are not counted under the thread sanitizer";
  const auto backend = make_cpu_backend(1);
  Layer layer(*backend);
  StepStamps stamps;
  for (int i = 0; i < 2; ++i) {  // each step that may be open has a place for its results
    layer.step(&stamps);
    stamps.clear();
  }
  const uint64_t before = test::thread_allocations();
  layer.step(&stamps);
  EXPECT_EQ(test::thread_allocations(), before);
}

TEST(VectorMath, ExpIsWithinItsBoundOverTheWholeRange) {
  double worst = 0.0;
  for (double at = -87.0; at < 88.7; at += 0.01) {
    float x[16];
    float y[16];
    for (int i = 0; i < 16; ++i)
      x[i] = static_cast<float>(at + 0.0006 * i);
    cpu::exp(cpu::Lanes::load(x)).store(y);
    for (int i = 0; i < 16; ++i)
      worst = std::max(worst, std::abs(y[i] / std::exp(static_cast<double>(x[i])) - 1.0));
  }
  EXPECT_LT(worst, 1.2e-7);
}

/// The sixteen results for these gates, with an up of 0.75 each.
template <GateActivation activation>
std::array<float, 16> gated_with(const float (&gate)[16]) {
  std::array<float, 16> out;
  cpu::gated<activation>(cpu::Lanes::load(gate), cpu::Lanes::set(0.75f)).store(out.data());
  return out;
}

template <GateActivation activation>
void expect_gated_as_the_reference() {
  double worst = 0.0;
  for (double at = -30.0; at < 30.0; at += 0.01) {
    float x[16];
    for (int i = 0; i < 16; ++i)
      x[i] = static_cast<float>(at + 0.0006 * i);
    const std::array<float, 16> y = gated_with<activation>(x);
    for (size_t i = 0; i < 16; ++i) {
      const double expected = reference::gated(activation, x[i], 0.75);
      worst =
          std::max(worst, std::abs(y[i] - expected) / std::max(1e-3, std::abs(static_cast<double>(x[i]))));
    }
  }
  EXPECT_LT(worst, 3e-7);
  const float inf = INFINITY;
  const float ends[16] = {0.0f, -0.0f, inf, 1e30f, -1e30f, NAN, 7.0f, 7.5f};
  const std::array<float, 16> y = gated_with<activation>(ends);
  const bool is_clamped = activation == GateActivation::clamped_swiglu;
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], is_clamped ? y[6] : inf);
  EXPECT_EQ(y[3], is_clamped ? y[6] : 0.75f * 1e30f);
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_TRUE(std::isnan(y[5]));
  EXPECT_EQ(y[7] == y[6], is_clamped);
}

TEST(VectorMath, ActivationsOfGateAndUpAreThoseOfTheReference) {
  expect_gated_as_the_reference<GateActivation::silu>();
  expect_gated_as_the_reference<GateActivation::gelu_tanh>();
  expect_gated_as_the_reference<GateActivation::gelu>();
  expect_gated_as_the_reference<GateActivation::clamped_swiglu>();
}

TEST(VectorMath, ClampedSwiGluKeepsUpWithinItsLimits) {
  const float ups[16] = {7.0f, 7.5f, INFINITY, -7.0f, -8.0f, -INFINITY, NAN, 2.0f};
  float y[16];
  cpu::gated<GateActivation::clamped_swiglu>(cpu::Lanes::set(3.0f), cpu::Lanes::load(ups)).store(y);
  EXPECT_EQ(y[1], y[0]);
  EXPECT_EQ(y[2], y[0]);
  EXPECT_EQ(y[4], y[3]);
  EXPECT_EQ(y[5], y[3]);
  EXPECT_TRUE(std::isnan(y[6]));
  EXPECT_NEAR(y[7], reference::gated(GateActivation::clamped_swiglu, 3.0, 2.0), 1e-5);
}

TEST(VectorMath, ExpAndSiluKeepTheEnds) {
  const float inf = INFINITY;
  const float x[16] = {0.0f, -0.0f, inf, -inf, 200.0f, -200.0f, NAN, -104.0f, 89.0f, 1.0f, 0, 0, 0, 0, 0, 0};
  float e[16];
  float s[16];
  cpu::exp(cpu::Lanes::load(x)).store(e);
  cpu::silu(cpu::Lanes::load(x)).store(s);
  EXPECT_EQ(e[0], 1.0f);
  EXPECT_EQ(e[1], 1.0f);
  EXPECT_EQ(e[2], inf);
  EXPECT_EQ(e[3], 0.0f);
  EXPECT_EQ(e[4], inf);
  EXPECT_EQ(e[5], 0.0f);
  EXPECT_TRUE(std::isnan(e[6]));
  EXPECT_EQ(e[7], 0.0f);
  EXPECT_EQ(e[8], inf);
  EXPECT_EQ(s[0], 0.0f);
  EXPECT_EQ(s[2], inf);
  EXPECT_EQ(s[5], 0.0f);
  EXPECT_NEAR(s[9], 0.7310586f, 1e-7);
}

}  // namespace
}  // namespace minfer
