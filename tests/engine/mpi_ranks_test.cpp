// A model on ranks that are processes, without MPI: their results, and what they first agree on.
#include <map>

#include <gmock/gmock.h>

#include "engine/engine.h"
#include "engine/evaluator.h"
#include "engine/ranks/agreement.h"
#include "engine/ranks/follow.h"
#include "engine/ranks/ranks.h"
#include "kernels/base/error.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/memory_transport.h"

namespace minfer {
namespace {

using test::run_as_processes;
using testing::HasSubstr;

EngineOptions options_of(std::shared_ptr<ProcessGroup> processes) {
  EngineOptions options;
  options.device = DeviceChoice::cpu;
  options.threads = 1;
  options.max_model_len = 128;
  options.max_num_batched_tokens = 32;
  options.processes = std::move(processes);
  return options;
}

std::vector<float> logits_of(const EngineOptions& options) {
  const std::unique_ptr<ModelSource> model = open_model("synthetic:tiny:q8_0");
  Evaluator evaluator(*model, options);
  std::vector<TokenId> tokens(70);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<TokenId>(3 + 7 * i);
  std::vector<float> logits;
  evaluator.run(tokens, 0, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

TEST(ProcessRanksTest, ComputeWhatThreadsCompute) {
  EngineOptions threads = options_of(nullptr);
  threads.threads = 2;  // both ranks together
  threads.tensor_parallel_size = 2;
  const std::vector<float> expected = logits_of(threads);
  std::vector<float> logits;
  run_as_processes(2, [&](const std::shared_ptr<ProcessGroup>& processes) {
    if (processes->rank().is_first()) {
      logits = logits_of(options_of(processes));
    } else {
      EXPECT_THROW(logits_of(options_of(processes)), FollowedToEnd);
    }
    EXPECT_FALSE(processes->failure().is_set()) << processes->failure().reason();
  });
  EXPECT_EQ(logits, expected);
}

/// Keeps the times of steps on each rank.
class ToldRankSteps final : public StepSink {
 public:
  void consume(const StepRecord& /*record*/) noexcept override { ++steps; }
  void consume_rank_step(const RankStep& step) noexcept override { ++of_rank[step.rank]; }
  int64_t steps = 0;
  std::map<int32_t, int64_t> of_rank;
};

TEST(ProcessRanksTest, TellWhatStepsTook) {
  run_as_processes(4, [](const std::shared_ptr<ProcessGroup>& processes) {
    const auto make_engine = [&] { return Engine(open_model("synthetic:tiny:q8_0"), options_of(processes)); };
    if (!processes->rank().is_first()) {
      EXPECT_THROW(make_engine(), FollowedToEnd);
      return;
    }
    ToldRankSteps told;
    {
      Engine engine = make_engine();
      engine.recorder().add_sink(told);
      const std::vector<TokenId> prompt(40, 7);
      test::answer_of(engine, test::greedy_request("a", prompt, 40));
      engine.recorder().remove_sink(told);
    }
    EXPECT_EQ(told.of_rank[0], told.steps);
    for (const int32_t rank : {1, 2, 3}) {
      EXPECT_GT(told.of_rank[rank], 0) << rank;
      EXPECT_LE(told.of_rank[rank], told.steps) << "the last ones may come too late";
    }
    EXPECT_FALSE(processes->failure().is_set()) << processes->failure().reason();
  });
}

TEST(OrderClock, IsAheadByTheLeastThatAnOrderTookOfLate) {
  OrderClock clock;
  EXPECT_EQ(clock.ahead_ns(), 0);
  for (int64_t order = 0; order < 100; ++order)
    clock.add(1'000 * order, 1'000 * order + 5'000'000 + (order == 40 ? 20 : 900));
  EXPECT_EQ(clock.ahead_ns(), 5'000'020);
  for (int64_t order = 100; order < 1'000; ++order)  // the clocks have drifted
    clock.add(1'000 * order, 1'000 * order + 5'000'400);
  EXPECT_EQ(clock.ahead_ns(), 5'000'400);
}

/// Expects both processes to end with this error if the second has other options.
void expect_difference(const std::function<void(EngineOptions&)>& change, const std::string& message) {
  run_as_processes(2, [&](const std::shared_ptr<ProcessGroup>& processes) {
    EngineOptions options = options_of(processes);
    if (!processes->rank().is_first()) change(options);
    try {
      logits_of(options);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  });
}

TEST(ProcessRanksTest, OtherOptionsAreAnErrorOfAll) {
  expect_difference([](EngineOptions& options) { options.max_model_len = 64; },
                    "rank 1 (host a, process 101): max-model-len is 64, rank 0 has 128");
  expect_difference([](EngineOptions& options) { options.kv_cache_dtype = DType::bf16; },
                    "kv-cache-dtype is bf16, rank 0 has auto");
}

TEST(ProcessRanksTest, AnotherNumberOfRanksIsAnError) {
  run_as_processes(2, [](const std::shared_ptr<ProcessGroup>& processes) {
    EngineOptions options = options_of(processes);
    options.tensor_parallel_size = 4;
    EXPECT_THROW(logits_of(options), Error);
  });
}

TEST(AgreementTest, FactsAreTheSameAsTextAndBack) {
  const std::unique_ptr<ModelSource> model = open_model("synthetic:tiny:q8_0");
  const std::vector<RankFact> facts = rank_facts(*model, options_of(nullptr), 8);
  const std::vector<RankFact> read = read_facts(write_facts(facts));
  ASSERT_EQ(read.size(), facts.size());
  EXPECT_EQ(find_difference("rank 1", read, facts), "");
}

TEST(AgreementTest, BytesOfAnotherModelOfTheSameShapeDiffer) {
  const std::vector<RankFact> facts = rank_facts(*open_model("synthetic:tiny:q8_0"), options_of(nullptr), 8);
  const std::vector<RankFact> others =
      rank_facts(*open_model("synthetic:tiny:q4_k_m"), options_of(nullptr), 8);
  EXPECT_THAT(find_difference("rank 1 (host b)", others, facts),
              HasSubstr("; tensor token_embd.weight is q4_k"));
}

TEST(AgreementTest, NamesTheFirstDifferencesAndCountsTheOthers) {
  std::vector<RankFact> first, theirs;
  for (int i = 0; i < 7; ++i)
    first.push_back({fmt::format("fact {}", i), "1"});
  theirs = {first[0]};
  EXPECT_EQ(find_difference("rank 2", theirs, first),
            "rank 2: fact 1 is missing, rank 0 has 1; fact 2 is missing, rank 0 has 1; fact 3 is missing, "
            "rank 0 has 1; "
            "fact 4 is missing, rank 0 has 1; and 2 more");
  theirs = first;
  theirs.push_back({"one more", "2"});
  EXPECT_EQ(find_difference("rank 2", theirs, first), "rank 2: 8 facts, rank 0 has 7");
}

TEST(AgreementTest, ReadsTextThatNobodyWrote) {
  for (const char* text : {"", "\n", "\t", "a", "a\n\n", "a\tb", "\t\t\n"})
    EXPECT_LE(read_facts(text).size(), 2u) << text;
}

}  // namespace
}  // namespace minfer
