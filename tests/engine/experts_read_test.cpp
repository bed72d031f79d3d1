// The records' counts of the experts that a step read, against the router's own choices.
#include <algorithm>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/decoder/weights/model_source.h"
#include "profiling/summary/summary.h"
#include "tests/support/engine/expert_counts.h"
#include "tests/support/last_steps.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

EngineOptions options_on_the_cpu() {
  EngineOptions options;
  options.device = DeviceChoice::cpu;
  options.max_model_len = 64;
  options.num_blocks = 64;
  options.threads = 1;
  return options;
}

class ExpertsRead : public testing::TestWithParam<const char*> {};

TEST_P(ExpertsRead, AreThoseThatTheRouterChose) {
  auto backend = std::make_unique<test::CountingBackend>();
  const std::vector<int32_t>& counts = backend->counts;
  Engine engine(open_model(source_path("tests/golden/") + GetParam() + ".gguf"), options_on_the_cpu(), {},
                std::move(backend));
  test::run_three_requests(engine);
  ASSERT_FALSE(counts.empty());
  EXPECT_EQ(test::experts_read(engine, "moe_gate_up_swiglu"), counts);
  EXPECT_EQ(test::experts_read(engine, "moe_down"), counts);
  for (const char* other : {"moe_route", "moe_router", "qkv"}) {
    const std::vector<int32_t> none = test::experts_read(engine, other);
    EXPECT_TRUE(std::ranges::all_of(none, [](int32_t experts) { return experts == -1; })) << other;
  }
  // The last request runs on alone: its token's experts are all different. In steps of more tokens, tokens share some.
  const OpInfo& gate_up = *std::ranges::find(engine.ops(), "moe_gate_up_swiglu", &OpInfo::name);
  EXPECT_EQ(counts.back(), gate_up.experts_used);
  EXPECT_GT(std::ranges::max(counts), gate_up.experts_used);
}

TEST_P(ExpertsRead, AreWhatAStepsBytesCount) {
  Engine engine(open_model(source_path("tests/golden/") + GetParam() + ".gguf"), options_on_the_cpu());
  test::run_three_requests(engine);
  const std::span<const OpInfo> ops = engine.ops();
  StepSummariser summariser(ops, {}, ProfileDetail::op);
  bool is_below_the_bound = false;
  for (const StepRecord& record : test::last_steps(engine.recorder(), 4096)) {
    const StepSummary step = summariser.summarise(record);
    int64_t experts = 0, bytes = 0, most_bytes = 0;
    for (const StepStamps::Stamp& stamp : record.stamps.ops) {
      const OpInfo& info = ops[static_cast<size_t>(stamp.op)];
      if (info.name != "moe_down") continue;
      experts += stamp.experts_read;
      bytes += op_work(info, record.batch.shape, stamp.experts_read).bytes();
      most_bytes += op_work(info, record.batch.shape).bytes();
    }
    const OpSummary& down = *std::ranges::find(step.ops, "moe_down", &OpSummary::op);
    EXPECT_EQ(down.experts_read, experts);
    EXPECT_EQ(down.bytes, bytes);
    EXPECT_LE(down.bytes, most_bytes);
    is_below_the_bound |= bytes < most_bytes;
    EXPECT_EQ(std::ranges::find(step.ops, "qkv", &OpSummary::op)->experts_read, -1);
  }
  EXPECT_TRUE(is_below_the_bound);
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertsRead,
                         testing::Values("mixtral", "qwen3moe", "qwen2moe", "glm4moe", "llama4"));

/// As in trained models, tokens differ: if all chose the same experts, a benchmark would read too few of the weights.
TEST(SyntheticExpertsRead, TokensOfAPromptChooseDifferentOnes) {
  auto backend = std::make_unique<test::CountingBackend>();
  const std::vector<int32_t>& counts = backend->counts;
  Engine engine(open_model("synthetic:tiny-moe:q8_0"), options_on_the_cpu(), {}, std::move(backend));
  std::vector<TokenId> prompt(12);
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<TokenId>(260 + 17 * i);
  engine.submit(test::greedy_request("1", prompt, 1));
  test::Answers().run(engine);
  // Twelve random choices of two of eight leave one expert out in a quarter of all cases, and two in one of sixty.
  EXPECT_THAT(counts, testing::Each(testing::Ge(7)));
}

}  // namespace
}  // namespace minfer
