// Thousands of random requests and cancellations in a small KV cache: no block leaks, and each
// request is answered once and correctly.
#include <random>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/paths.h"
#include "tests/support/random_operations.h"

namespace minfer {
namespace {

using test::Answer;
using test::Answers;
using test::expect_as_alone;

constexpr size_t kKinds = 40;
constexpr int32_t kRequests = 3000;

/// One of kKinds requests: greedy or drawn with a seed, with penalties, stop strings or logprobs. Many share
/// the beginning of their prompts.
Request request_of_kind(size_t kind) {
  std::mt19937 random(static_cast<uint32_t>(kind));
  const auto pick = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  std::vector<TokenId> prompt;
  for (int32_t i = pick(0, 3) * 4; i > 0; --i)
    prompt.push_back(50 + i);
  for (int32_t i = pick(1, 20); i > 0; --i)
    prompt.push_back(pick(3, 287));
  Request request = test::greedy_request("", std::move(prompt), pick(1, 16));
  SamplingParams& sampling = request.sampling;
  sampling.ignore_eos = pick(0, 1) == 0;
  sampling.min_tokens = std::min(sampling.max_tokens, pick(0, 3));
  sampling.stream_interval = pick(0, 6);
  if (pick(0, 1) == 0) {
    sampling.temperature = 1.0f;
    sampling.seed = kind;
  }
  if (pick(0, 2) == 0) sampling.repetition_penalty = 1.3f;
  if (pick(0, 2) == 0) sampling.logprobs = 2;
  if (pick(0, 2) == 0) sampling.stop = {"a", "e", "to"};
  request.priority = pick(0, 2);
  return request;
}

std::unique_ptr<Engine> make_soak_engine(const EngineOptions& options) {
  return std::make_unique<Engine>(open_model(source_path("tests/golden/mixtral.gguf")), options);
}

EngineOptions roomy_options() {
  EngineOptions options;
  options.max_model_len = 64;
  options.max_num_seqs = 1;
  options.num_blocks = 64;
  options.enable_prefix_caching = false;
  options.threads = 1;
  return options;
}

void soak(SchedulingPolicy policy, uint64_t seed, int32_t steps_ahead = 0,
          std::optional<double> target_itl_ms = 0.0) {
  std::vector<Answer> alone;
  const auto quiet = make_soak_engine(roomy_options());
  for (size_t kind = 0; kind < kKinds; ++kind) {
    Request request = request_of_kind(kind);
    request.id = "alone";
    alone.push_back(test::answer_of(*quiet, request));
  }

  EngineOptions options = roomy_options();
  options.policy = policy;
  options.steps_ahead = steps_ahead;
  options.target_itl_ms = target_itl_ms;
  options.max_num_seqs = 6;
  options.block_size = 4;
  options.num_blocks = 20;
  options.max_num_batched_tokens = 24;
  options.enable_prefix_caching = true;
  const auto engine = make_soak_engine(options);
  std::mt19937_64 random(seed);
  std::map<std::string, size_t> kinds;
  std::vector<std::string> live;
  Answers answers;
  int64_t num_preempted = 0, num_hits = 0, newest = -1;
  while (kinds.size() < kRequests || engine->has_work()) {
    for (uint64_t n = random() % 3; n > 0 && kinds.size() < kRequests && live.size() < 30; --n) {
      const size_t kind = random() % kKinds;
      Request request = request_of_kind(kind);
      request.id = std::to_string(kinds.size());
      engine->submit(request);
      kinds[request.id] = kind;
      live.push_back(request.id);
    }
    if (!live.empty() && random() % 8 == 0) {
      const size_t victim = random() % live.size();  // may have ended by now: then nothing happens
      engine->cancel(live[victim]);
      live.erase(live.begin() + static_cast<ptrdiff_t>(victim));
    }
    answers.step(*engine);
    std::erase_if(live,
                  [&](const std::string& id) { return answers.contains(id) && answers.at(id).finished(); });
    for (const StepRecord& record : engine->recorder().after(newest)) {
      newest = record.step;
      num_preempted += record.batch.preempted;
      num_hits += record.batch.prefix_hit_tokens;
    }
  }
  EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
  ASSERT_EQ(answers.size(), kinds.size());
  size_t num_cancelled = 0;
  for (const auto& [id, answer] : answers.all()) {
    ASSERT_TRUE(answer.finished()) << id;
    num_cancelled += answer.last.finish == FinishReason::cancelled;
    expect_as_alone(answer, alone[kinds.at(id)], id);
  }
  EXPECT_GT(num_cancelled, 100u);
  EXPECT_GT(num_preempted, 50);
  EXPECT_GT(num_hits, 1000);
}

TEST(EngineSoakTest, FirstComeFirstServed) {
  soak(SchedulingPolicy::fcfs, test::first_seed());
}

TEST(EngineSoakTest, ByPriority) {
  soak(SchedulingPolicy::priority, test::first_seed() + 1);
}

// The times of steps differ from run to run, and so does the way in which prompts are cut.
TEST(EngineSoakTest, ShortestFirstWithATarget) {
  soak(SchedulingPolicy::shortest, test::first_seed() + 4, 0, 0.5);
  soak(SchedulingPolicy::shortest, test::first_seed() + 5, 1, std::nullopt);
}

// Each step is launched before the result of the one in front is known.
TEST(EngineSoakTest, AStepAhead) {
  soak(SchedulingPolicy::fcfs, test::first_seed() + 2, 1);
  soak(SchedulingPolicy::priority, test::first_seed() + 3, 1);
}

}  // namespace
}  // namespace minfer
