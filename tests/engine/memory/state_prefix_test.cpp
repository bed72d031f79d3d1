// Models with states answer on a cached prefix as without one, bit for bit, whatever happens to the copies of states.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/options/sizes.h"
#include "models/decoder/memory/kv_cache.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/models/logit_run.h"
#include "tests/support/models/token_texts.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::joined;
using test::LogitJob;
using test::LogitRun;
using test::LogitTrace;
using test::random_tokens;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Families of tests/golden, and a synthetic one with larger heads.
const std::vector<std::string> kHybridModels{
    "qwen3next",      "qwen35",     "qwen35moe",          "lfm2",        "lfm2moe",
    "granite-hybrid", "nemotron-h", "nemotron-h-experts", "kimi-linear", "synthetic:tiny-hybrid:f32"};

EngineOptions prefix_options() {
  EngineOptions options;
  options.max_model_len = 256;
  options.max_num_seqs = 8;
  options.num_blocks = 256;
  options.threads = 1;
  options.num_state_copies = 16;
  options.state_copy_rule = {.interval = 96, .reopened_tokens = 4, .least_tokens = 16};
  return options;
}

class StatePrefix : public testing::TestWithParam<std::string> {
 protected:
  LogitTrace alone(const LogitJob& job) const {
    EngineOptions options = prefix_options();
    options.enable_prefix_caching = false;
    options.num_state_copies = 0;
    return LogitRun(*source_, options).run({job}).front();
  }

  void expect_as_alone(const LogitTrace& trace, const LogitJob& job, const std::string& what) const {
    EXPECT_TRUE(trace.same_bits(alone(job))) << what << ", " << trace.num_cached_tokens << " tokens cached";
  }

  /// Fills slots with NaN, so that reading a slot that was not written since gives NaN.
  void poison(const LogitRun& run, int32_t first_slot, int32_t num_slots) const {
    const int64_t delta = source_->config().delta_net.delta_state(), conv = source_->config().conv_state();
    for (int32_t layer = 0; layer < source_->config().num_layers; ++layer) {
      const RecurrentLayer& states = run.states().layer(layer);
      if (states.num_slots == 0) continue;
      std::fill_n(states.delta + first_slot * delta, num_slots * delta, std::nanf(""));
      std::fill_n(states.conv + first_slot * conv, num_slots * conv, std::nanf(""));
    }
  }

  std::unique_ptr<ModelSource> source_ = open_model(test_model(GetParam()));
};

/// Each turn begins with the turn before it, and finds that turn's prompt. Slots of sequences are poisoned between turns, copies at first.
TEST_P(StatePrefix, TurnsOfAConversation) {
  EngineOptions options = prefix_options();
  options.state_copy_rule.interval = 1000;  // no answer has a copy
  LogitRun run(*source_, options);
  poison(run, 0, run.options().num_state_slots + 16);
  std::vector<TokenId> said = random_tokens(41, 1);
  int32_t expected_hit = 0;
  for (uint32_t turn = 0; turn < 5; ++turn) {
    const LogitJob job{said, 13};
    const LogitTrace trace = run.run({job}).front();
    EXPECT_EQ(trace.num_cached_tokens, expected_hit) << "turn " << turn;
    expect_as_alone(trace, job, "turn " + std::to_string(turn));
    expected_hit = (static_cast<int32_t>(said.size()) - 4) / 16 * 16;
    said = joined(joined(said, trace.tokens), random_tokens(9 + static_cast<int32_t>(turn) * 7, 50 + turn));
    poison(run, 0, run.options().num_state_slots);
  }
  EXPECT_GT(expected_hit, 96);
}

TEST_P(StatePrefix, InstructionsThatRequestsShare) {
  for (const int32_t shared :
       {31, 32, 33, 47, 64, 95, 96, 97, 111}) {  // beside and at ends of blocks, and of the interval
    LogitRun run(*source_, prefix_options());
    const std::vector<TokenId> instructions = random_tokens(shared, 2);
    for (uint32_t i = 0; i < 4; ++i) {
      const LogitJob job{joined(instructions, {static_cast<TokenId>(243 + i)}), 3};
      const LogitJob longer{joined(job.prompt, random_tokens(40 + static_cast<int32_t>(i), 10 + i)), 3};
      const LogitTrace trace = run.run({longer}).front();
      if (i >= 2) {
        EXPECT_EQ(trace.num_cached_tokens, shared / 16 * 16) << shared;
      } else {
        EXPECT_EQ(trace.num_cached_tokens, i == 1 && shared >= 96 ? 96 : 0) << shared;
      }
      expect_as_alone(trace, longer, std::to_string(shared) + " shared, request " + std::to_string(i));
    }
  }
}

/// Each rank copies the states of its own heads.
TEST_P(StatePrefix, OnTwoRanks) {
  if (std::string_view(GetParam()) == "granite-hybrid") GTEST_SKIP() << "its one group is not divided";
  EngineOptions options = prefix_options();
  options.tensor_parallel_size = 2;
  EngineOptions without = options;
  without.enable_prefix_caching = false;
  without.num_state_copies = 0;
  LogitRun run(*source_, options);
  const std::vector<TokenId> begin = random_tokens(70, 3);
  run.run({{begin, 2}});
  const LogitJob first{joined(begin, random_tokens(9, 20)), 6},
      second{joined(begin, random_tokens(23, 21)), 6};
  const std::vector<LogitTrace> traces = run.run({first, second});
  const std::vector<LogitTrace> expected = LogitRun(*source_, without).run({first, second});
  for (size_t i = 0; i < traces.size(); ++i) {
    EXPECT_EQ(traces[i].num_cached_tokens, 64);
    EXPECT_EQ(expected[i].num_cached_tokens, 0);
    EXPECT_TRUE(traces[i].same_bits(expected[i])) << i;
  }
}

TEST_P(StatePrefix, ManyAtOnceOnOneCopy) {
  LogitRun run(*source_, prefix_options());
  const std::vector<TokenId> begin = random_tokens(70, 3);
  run.run({{begin, 2}});
  std::vector<LogitJob> jobs;
  for (uint32_t i = 0; i < 8; ++i)
    jobs.push_back({joined(begin, random_tokens(1 + 5 * static_cast<int32_t>(i), 20 + i)), 6});
  const std::vector<LogitTrace> traces = run.run(jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(traces[i].num_cached_tokens, 64);
    expect_as_alone(traces[i], jobs[i], "request " + std::to_string(i));
  }
  EXPECT_EQ(run.run(jobs)[7].num_cached_tokens, 96) << "their own ends";
}

/// Conversations in turn, with fewer copies than conversations, for several numbers of copies.
TEST_P(StatePrefix, WithFewSlots) {
  for (const int32_t num_copies : {1, 2, 8}) {
    EngineOptions options = prefix_options();
    options.num_state_copies = num_copies;
    options.max_num_batched_tokens = 50;
    LogitRun run(*source_, options);
    std::vector<std::vector<TokenId>> said;
    for (uint32_t i = 0; i < 3; ++i)
      said.push_back(random_tokens(40 + 3 * static_cast<int32_t>(i), i));
    int32_t num_hits = 0;
    for (uint32_t turn = 0; turn < 4; ++turn) {
      std::vector<LogitJob> jobs;
      for (const auto& each : said)
        jobs.push_back({each, 4});
      const std::vector<LogitTrace> traces = run.run(jobs);
      for (size_t i = 0; i < jobs.size(); ++i) {
        expect_as_alone(traces[i], jobs[i], std::to_string(num_copies) + " copies");
        num_hits += traces[i].num_cached_tokens > 0;
        said[i] = joined(joined(said[i], traces[i].tokens), random_tokens(17, 90 + turn));
      }
      EXPECT_LE(run.state_copies().num_kept(), num_copies);
    }
    if (num_copies == 8) {
      EXPECT_GT(num_hits, 5);
    }
  }
}

TEST_P(StatePrefix, PreemptedSequencesGoOnFromTheLatestCopy) {
  EngineOptions options = prefix_options();
  options.max_model_len = 128;
  options.block_size = 4;
  options.num_blocks = 52;
  options.max_num_batched_tokens = 24;
  options.num_state_copies = 32;
  options.state_copy_rule.interval = 16;
  LogitRun run(*source_, options);
  std::vector<LogitJob> jobs;
  for (uint32_t i = 0; i < 4; ++i)
    jobs.push_back({random_tokens(20 + static_cast<int32_t>(i), i), 60});
  int32_t num_preemptions = 0, num_restored = 0;
  const std::vector<LogitTrace> traces = run.run(jobs, [&](HostBatch& batch, const KvCache&) {
    num_restored += static_cast<int32_t>(batch.state_restores.size());
  });
  for (size_t i = 0; i < jobs.size(); ++i) {
    num_preemptions += traces[i].num_preemptions;
    expect_as_alone(traces[i], jobs[i], "request " + std::to_string(i));
  }
  EXPECT_GT(num_preemptions, 1);
  EXPECT_GT(num_restored, 0);
}

/// Control: answers depend on the copies.
TEST_P(StatePrefix, ASpoiltCopyIsNoticed) {
  LogitRun run(*source_, prefix_options());
  const LogitJob job{random_tokens(60, 4), 4};
  run.run({job});
  poison(run, run.options().num_state_slots, 16);
  const LogitTrace trace = run.run({job}).front();
  EXPECT_GT(trace.num_cached_tokens, 0);
  EXPECT_FALSE(trace.same_bits(alone(job)));
}

/// Clients leave in the middle of an answer, with a step ahead and without.
TEST_P(StatePrefix, CancelledInTheMiddle) {
  const auto make_requests = [] {
    std::vector<Request> requests;
    for (int32_t i = 0; i < 16; ++i) {
      const auto suffix = random_tokens(1 + 11 * (i % 4), 30 + static_cast<uint32_t>(i % 8));
      requests.push_back(test::greedy_request(std::to_string(i),
                                              joined(random_tokens(37 + 20 * (i % 2), 7), suffix), 4 + i));
    }
    return requests;
  };
  EngineOptions options = prefix_options();
  options.enable_prefix_caching = false;
  options.num_state_copies = 0;
  std::map<std::string, test::Answer> expected;
  for (const Request& request : make_requests()) {
    Engine engine(open_model(test_model(GetParam())), options);
    expected[request.id] = test::answer_of(engine, request);
  }
  for (const int32_t steps_ahead : {0, 1}) {
    options = prefix_options();
    options.steps_ahead = steps_ahead;
    options.max_num_seqs = 4;
    options.max_num_batched_tokens = 23;
    options.num_blocks = 40;
    options.max_model_len = 128;
    options.num_state_copies = 4;
    Engine engine(open_model(test_model(GetParam())), options);
    for (const Request& request : make_requests())
      engine.submit(request);
    test::Answers answers;
    for (int32_t step = 0; engine.has_work(); ++step) {
      if (step % 7 == 3) engine.cancel(std::to_string(step / 7));
      answers.step(engine);
    }
    int32_t num_hits = 0, num_whole = 0;
    for (const auto& [id, answer] : answers.all()) {
      test::expect_as_alone(answer, expected.at(id), id);
      num_hits += answer.last.cached_tokens > 0;
      num_whole += answer.last.finish == FinishReason::length;
    }
    EXPECT_GT(num_hits, 2) << steps_ahead << " ahead";
    EXPECT_GT(num_whole, 4);
    EXPECT_LT(num_whole, 16) << "nothing was cancelled";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StatePrefix, testing::ValuesIn(kHybridModels), [](const auto& model) {
  std::string label = model.param;
  std::ranges::replace_if(
      label, [](char c) { return c == ':' || c == '-'; }, '_');
  return label;
});

EngineOptions chosen_options(const std::string& model, const EngineOptions& options) {
  const auto source = open_model(test_model(model));
  return ModelRunner(*source, options, options.max_num_seqs).options();
}

std::string refusal(const std::string& model, const EngineOptions& options) {
  return test::refusal_of([&] { chosen_options(model, options); });
}

TEST(StateCopyOptions, AQuarterOfTheCacheUnlessANumberIsAskedFor) {
  const std::string model = "synthetic:tiny-hybrid:f32";
  EngineOptions options;
  options.threads = 1;
  options.max_num_seqs = 4;
  options.max_model_len = 1024;
  options.kv_cache_bytes = int64_t{32} << 20;
  const auto source = open_model(model);
  const auto slot = static_cast<int64_t>(RecurrentStatePool::slot_bytes(source->config()));
  const auto block = static_cast<int64_t>(KvCache::block_bytes(source->config(), {}, DType::f32, 16));
  EngineOptions chosen = chosen_options(model, options);
  EXPECT_TRUE(chosen.enable_prefix_caching);
  EXPECT_EQ(chosen.num_state_copies, options.kv_cache_bytes / 4 / slot);
  EXPECT_LE(chosen.num_blocks * block + *chosen.num_state_copies * slot, options.kv_cache_bytes);
  EXPECT_GT(*chosen.num_state_copies, 3);
  // The longest sequence takes precedence.
  options.kv_cache_bytes = 1024 / 16 * block + 2 * slot;
  chosen = chosen_options(model, options);
  EXPECT_LE(*chosen.num_state_copies, 2);
  EXPECT_GE(chosen.num_blocks, 1024 / 16);
  options.kv_cache_bytes = 1024 / 16 * block;
  chosen = chosen_options(model, options);
  EXPECT_EQ(chosen.num_state_copies, 0);
  EXPECT_FALSE(chosen.enable_prefix_caching) << "nothing would be found";
  options.kv_cache_bytes = 0;
  options.num_state_copies = 7;
  EXPECT_EQ(chosen_options(model, options).num_state_copies, 7);
  options.num_state_copies = 0;
  EXPECT_FALSE(chosen_options(model, options).enable_prefix_caching);
}

TEST(StateCopyOptions, NoneWherePrefixesAreNotFound) {
  EngineOptions options = prefix_options();
  options.num_state_copies.reset();
  for (const bool of_cache : {false, true}) {
    options.enable_prefix_caching = !of_cache;
    options.enable_chunked_prefill = of_cache;
    const EngineOptions chosen = chosen_options("qwen35", options);
    EXPECT_EQ(chosen.num_state_copies, 0);
    EXPECT_FALSE(chosen.enable_prefix_caching);
  }
  options = prefix_options();
  options.num_state_copies.reset();
  const auto plain = open_model("");
  const EngineOptions chosen = ModelRunner(*plain, options, 8).options();
  EXPECT_EQ(chosen.num_state_copies, 0);
  EXPECT_TRUE(chosen.enable_prefix_caching);
}

TEST(StateCopyOptions, WhatDoesNotFitIsRefusedWithTheNumberThatWould) {
  EngineOptions options = prefix_options();
  options.num_state_copies.reset();
  options.num_blocks = 0;
  options.kv_cache_bytes = 1 << 20;
  const auto source = open_model(test_model("qwen35"));
  const auto slot = static_cast<int64_t>(RecurrentStatePool::slot_bytes(source->config()));
  const auto block = static_cast<int64_t>(KvCache::block_bytes(source->config(), {}, DType::f32, 16));
  const int64_t most = (options.kv_cache_bytes - block) / slot;
  options.num_state_copies = static_cast<int32_t>(most) + 1;
  EXPECT_THAT(refusal("qwen35", options),
              AllOf(HasSubstr("num-state-copies: "), HasSubstr("lower it to " + std::to_string(most))));
  options.max_model_len = 16;
  options.num_state_copies = static_cast<int32_t>(most);
  EXPECT_EQ(refusal("qwen35", options), "");
  options = prefix_options();
  EXPECT_THAT(refusal("mixtral", options), AllOf(HasSubstr("num-state-copies: 16"), HasSubstr("expected 0")));
  options.enable_prefix_caching = false;
  EXPECT_THAT(refusal("qwen35", options), HasSubstr("without prefix caching"));
}

}  // namespace
}  // namespace minfer
