// Several ranks give the results of one: logits up to the order of sums, and so the same tokens.
#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include <gmock/gmock.h>

#include "engine/evaluator.h"
#include "profiling/findings/findings_report.h"
#include "profiling/findings/rules.h"
#include "profiling/trace/range_analysis.h"
#include "tests/support/engine/rank_run.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/fake_tracer.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::failure_of;
using test::LogitTrace;
using testing::HasSubstr;

struct RankCase {
  std::string model;
  int32_t ranks;
};

std::unique_ptr<ModelSource> open_case(const std::string& model) {
  if (model == "demo") return open_model("");
  return open_model(test_model(model));
}

EngineOptions rank_options(int32_t ranks) {
  return test::rank_options(DeviceChoice::cpu, ranks);
}

class RanksOf : public testing::TestWithParam<RankCase> {};

TEST_P(RanksOf, GiveTheLogitsOfOne) {
  const auto source = open_case(GetParam().model);
  const std::vector<LogitTrace> expected = test::rank_logits(*source, rank_options(1));
  const std::vector<LogitTrace> found = test::rank_logits(*source, rank_options(GetParam().ranks));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
    EXPECT_LT(test::nmse(found[i].logits, expected[i].logits), 1e-10) << i;
  }
  const std::vector<LogitTrace> again = test::rank_logits(*source, rank_options(GetParam().ranks));
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(again[i].same_bits(found[i])) << "sums have an order";
}

std::string case_name(const testing::TestParamInfo<RankCase>& info) {
  std::string text = info.param.model + "_" + std::to_string(info.param.ranks);
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return text;
}

INSTANTIATE_TEST_SUITE_P(
    Models, RanksOf,
    testing::Values(RankCase{"demo", 2}, RankCase{"mixtral", 2}, RankCase{"qwen3moe", 2},
                    RankCase{"synthetic:tiny:f32", 2}, RankCase{"synthetic:tiny:f32", 4},
                    RankCase{"synthetic:tiny:bf16", 8}, RankCase{"synthetic:tiny:q8_0", 4},
                    RankCase{"synthetic:tiny:q4_0", 2}, RankCase{"synthetic:tiny:mxfp4", 4},
                    RankCase{"gemma2", 2}, RankCase{"gemma3", 2}, RankCase{"phi3", 2}, RankCase{"granite", 2},
                    RankCase{"glm4", 4}, RankCase{"command-r", 4}, RankCase{"command-r-plus", 2},
                    RankCase{"starcoder2", 2}, RankCase{"stablelm-parallel", 2}, RankCase{"stablelm-12b", 4},
                    RankCase{"llama4-dense", 2}, RankCase{"gpt-oss", 2}, RankCase{"glm4moe", 2},
                    RankCase{"qwen2moe", 2}, RankCase{"deepseek-v2", 2}, RankCase{"deepseek-v3", 2},
                    RankCase{"deepseek32", 2}, RankCase{"glm-dsa", 2}, RankCase{"llama4", 2},
                    RankCase{"gemma3n-dense", 2}, RankCase{"gemma4", 2}, RankCase{"gemma4", 4},
                    RankCase{"qwen3next", 2}, RankCase{"qwen35", 2}, RankCase{"qwen35moe", 2},
                    RankCase{"lfm2", 2}, RankCase{"lfm2moe", 2}, RankCase{"granite-hybrid-experts", 2},
                    RankCase{"nemotron-h", 2}, RankCase{"nemotron-h-experts", 2}, RankCase{"kimi-linear", 2},
                    RankCase{"kimi-linear", 4}, RankCase{"kimi-linear-q-rank", 2},
                    RankCase{"synthetic:tiny-hybrid:f32", 2}),
    case_name);

TEST(Ranks, ShareAVocabularyThatTheyDoNotDivide) {
  for (const auto& [model, ranks] : {std::pair{"granite", 2}, {"gemma2", 2}, {"synthetic:tiny:q8_0", 4}}) {
    const test::OddVocabulary source(open_case(model));
    ASSERT_EQ(source.config().vocab_size % 2, 1);
    const std::vector<LogitTrace> expected = test::rank_logits(source, rank_options(1));
    const std::vector<LogitTrace> found = test::rank_logits(source, rank_options(ranks));
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(found[i].tokens, expected[i].tokens) << model << " " << i;
      EXPECT_EQ(found[i].logits.size(), expected[i].logits.size());
      EXPECT_LT(test::nmse(found[i].logits, expected[i].logits), 1e-10) << model << " " << i;
    }
  }
}

/// The same, drawn and scored by an engine, whose rows of logits are not contiguous.
TEST(Ranks, AnEngineWithSuchAVocabularyAnswersAsOneDoes) {
  const auto answer_of = [](int32_t ranks) {
    Engine engine(std::make_unique<test::OddVocabulary>(open_case("granite")), rank_options(ranks));
    Request request = test::greedy_request("a", {1, 5, 9, 200, 77}, 20);
    request.sampling.temperature = 0.8f;
    request.sampling.seed = 3;
    request.sampling.prompt_logprobs = 1;
    return test::answer_of(engine, request);
  };
  EXPECT_EQ(answer_of(2).tokens, answer_of(1).tokens);
}

TEST(Ranks, AnEngineOfTwoAnswersAsOneDoes) {
  const auto answers = [](int32_t ranks, int32_t steps_ahead) {
    EngineOptions options = rank_options(ranks);
    options.steps_ahead = steps_ahead;
    return test::rank_answers(options);
  };
  const test::Answers alone = answers(1, 0);
  for (const int32_t steps_ahead : {0, 1}) {
    const test::Answers ranks = answers(2, steps_ahead);
    for (const auto& [id, answer] : alone.all()) {
      EXPECT_EQ(ranks.at(id).tokens, answer.tokens) << id << " " << steps_ahead;
      EXPECT_EQ(ranks.at(id).prompt_logprobs.size(), answer.prompt_logprobs.size());
    }
  }
}

TEST(Ranks, StepRecordsNameTheOpsBetweenThem) {
  Engine engine(open_model(""), rank_options(2));
  test::answer_of(engine, test::greedy_request("a", engine.tokenizer().encode("Once"), 3));
  std::vector<std::string> between;
  for (const OpInfo& op : engine.ops()) {
    if (op.kind == OpKind::all_reduce || op.kind == OpKind::all_gather || op.kind == OpKind::broadcast)
      between.push_back(op.name);
  }
  EXPECT_EQ(between.size(), static_cast<size_t>(2 * engine.config().num_layers + 3));
  EXPECT_THAT(between, testing::IsSupersetOf({"embed_all_reduce", "attn_all_reduce", "ffn_all_reduce",
                                              "gather_logits", "share_tokens"}));
}

/// Keeps the times of steps on each rank.
class ToldSteps final : public StepSink {
 public:
  void consume(const StepRecord& /*record*/) noexcept override { ++steps; }
  void consume_rank_step(const RankStep& step) noexcept override { ranks.push_back(step); }
  int64_t steps = 0;
  std::vector<RankStep> ranks;
};

TEST(Ranks, EachTellsWhatAStepTook) {
  Engine engine(open_model(""), rank_options(2));
  ToldSteps told;
  engine.recorder().add_sink(told);
  test::answer_of(engine, test::greedy_request("a", engine.tokenizer().encode("Once"), 20));
  engine.recorder().remove_sink(told);
  int64_t of_first = 0, of_second = 0;
  for (const RankStep& step : told.ranks) {
    ++(step.rank == 0 ? of_first : of_second);
    EXPECT_GT(step.computed_ns, 0);
    EXPECT_GT(step.exchange_ns, 0);
    EXPECT_LE(step.waited_ns, step.exchange_ns);
    EXPECT_EQ(step.computed_ns + step.exchange_ns, step.end_ns - step.begin_ns);
    EXPECT_GT(step.host_ns, 0);
    EXPECT_LE(step.launch_ns, step.host_ns);
    EXPECT_NE(step.launch_ns, RankStep::kNotKnown);
    EXPECT_GE(step.idle_ns, 0);
    EXPECT_EQ(step.idle_ns > 0, step.step > 0) << "the host schedules in between";
  }
  EXPECT_EQ(of_first, told.steps);
  EXPECT_GT(of_second, 0);
  EXPECT_LE(of_second, told.steps) << "the last may come too late";
}

TEST(Ranks, WorkOfAHostIsThatOfItsRank) {
  constexpr std::chrono::milliseconds kDelay{3};
  EngineOptions options = rank_options(2);
  options.on_rank_step = [&](Rank, int64_t) { std::this_thread::sleep_for(kDelay); };
  Engine engine(open_model(""), options);
  ToldSteps told;
  engine.recorder().add_sink(told);
  test::answer_of(engine, test::greedy_request("a", engine.tokenizer().encode("Once"), 20));
  engine.recorder().remove_sink(told);
  int64_t of_second = 0, waited_ns = 0;
  for (const RankStep& step : told.ranks) {
    if (step.rank == 0) {
      waited_ns += step.waited_ns;
    } else {
      ++of_second;
      EXPECT_GE(step.launch_ns, std::chrono::nanoseconds(kDelay).count());
    }
  }
  EXPECT_GT(of_second, 0);
  EXPECT_GT(waited_ns, 0);
}

TEST(Ranks, AllOfThemAreTraced) {
  test::FakeTracer tracer;
  EngineOptions options = rank_options(2);
  options.tracer = &tracer;
  Engine engine(open_model(""), options);
  ToldSteps told;  // so that steps are recorded
  engine.recorder().add_sink(told);
  std::optional<RangeTrace> trace;
  for (const int64_t first : {4, 20}) {
    trace.reset();
    engine.set_profile_range({.first_step = first, .last_step = first + 5, .on_trace = [&](RangeTrace range) {
                                trace = std::move(range);
                              }});
    test::answer_of(engine,
                    test::greedy_request(std::to_string(first), engine.tokenizer().encode("Once"), 15));
    ASSERT_TRUE(trace.has_value());
    std::vector<RangeTrace> ranges = by_rank(std::move(*trace));
    ASSERT_EQ(ranges.size(), 2u);
    for (int32_t rank = 0; rank < 2; ++rank) {
      const RangeAnalysis analysis(std::move(ranges[static_cast<size_t>(rank)]), engine.ops());
      EXPECT_EQ(analysis.line().rank, rank);
      EXPECT_EQ(analysis.line().first_step, first);
      EXPECT_EQ(analysis.line().steps, 6);
      EXPECT_EQ(analysis.line().kernels, 6) << "one a step";
      EXPECT_EQ(analysis.line().outside, 0);
    }
  }
  engine.recorder().remove_sink(told);
}

/// Keeps everything that findings are based on.
class EvidenceSink final : public StepSink {
 public:
  explicit EvidenceSink(const ProfileHeader& header) : summariser_(header.ops, {}, ProfileDetail::op) {
    evidence_.header(header);
  }
  void consume(const StepRecord& record) noexcept override { evidence_.add(summariser_.summarise(record)); }
  void consume_rank_step(const RankStep& step) noexcept override { evidence_.rank_step(step); }
  const Evidence& evidence() const { return evidence_; }

 private:
  Evidence evidence_;
  StepSummariser summariser_;
};

// A delay longer than the time that ranks lose to each other by themselves, even if they share cores.
TEST(Ranks, TheOneThatIsSlowIsFound) {
  constexpr std::chrono::milliseconds kDelay{30};
  EngineOptions options = rank_options(4);
  options.on_rank_step = [&](Rank rank, int64_t) {
    if (rank.index == 2) std::this_thread::sleep_for(kDelay);
  };
  Engine engine(open_model("synthetic:tiny:f32"), options);
  ProfileHeader header;
  header.backend = "cpu";
  header.options = {{"tensor_parallel_size", "4"}, {"max_num_seqs", "8"}, {"max_num_batched_tokens", "64"}};
  header.ops.assign(engine.ops().begin(), engine.ops().end());
  EvidenceSink sink(header);
  engine.recorder().add_sink(sink);
  for (int i = 0; i < 8; ++i)
    engine.submit(test::greedy_request(std::to_string(i), std::vector<TokenId>(3, 7), 24));
  test::Answers().run(engine);
  engine.recorder().remove_sink(sink);
  const Diagnosis diagnosis = diagnose(sink.evidence());
  ASSERT_FALSE(diagnosis.findings.empty());
  const Finding& first = diagnosis.findings.front();
  EXPECT_EQ(first.rule, "slow rank") << findings_text(diagnosis, false);
  EXPECT_THAT(first.evidence, HasSubstr("longer for rank 2"));
  EXPECT_THAT(first.advice, HasSubstr("its host's thread"));
  EXPECT_GT(first.weight(), kHealthyGain);
}

TEST(Ranks, ARankThatFailsEndsTheEngine) {
  EngineOptions options = rank_options(2);
  options.on_rank_step = [](Rank rank, int64_t step) {
    if (step == 5) fail("rank {} was made to fail", rank.index);
  };
  Engine engine(open_model(""), options);
  EXPECT_THAT(failure_of(engine), HasSubstr("rank 1 of 2: rank 1 was made to fail"));
}

TEST(Ranks, ARankThatHangsEndsTheEngineAfterItsTime) {
  std::promise<void> go_on;
  EngineOptions options = rank_options(2);
  options.rank_timeout_s = 1;
  options.on_rank_step = [hung = go_on.get_future().share()](Rank, int64_t step) {
    if (step == 5) hung.wait();
  };
  Engine engine(open_model(""), options);
  EXPECT_THAT(failure_of(engine), HasSubstr("rank 0 waited 1000 ms for 1 of 2 ranks"));
  go_on.set_value();
}

TEST(Ranks, WhatCannotBeDividedIsRefused) {
  EngineOptions options = rank_options(3);
  EXPECT_THROW(Engine(open_model(""), options), Error);
  options.tensor_parallel_size = 0;
  EXPECT_THROW(Engine(open_model(""), options), Error);
}

std::string refusal_of_ranks(const EngineOptions& options) {
  return test::refusal_of([&] { const Engine engine(open_model(""), options); });
}

TEST(Ranks, OptionsThatWouldBeIgnoredAreRefused) {
  EngineOptions alone = rank_options(1);
  alone.all_reduce = AllReduceChoice::nccl;
  EXPECT_THAT(refusal_of_ranks(alone), HasSubstr("all-reduce: "));
  alone.all_reduce = AllReduceChoice::automatic;
  alone.rank_timeout_s = 3;
  EXPECT_THAT(refusal_of_ranks(alone), HasSubstr("rank-timeout: "));
  EngineOptions on_cpus = rank_options(2);
  on_cpus.all_reduce = AllReduceChoice::peer;
  EXPECT_THAT(refusal_of_ranks(on_cpus), HasSubstr("all-reduce: CPUs have one way"));
}

}  // namespace
}  // namespace minfer
