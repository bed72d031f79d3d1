// Random traffic through scheduler, batch builder and a scripted model that notices every wrong KV slot.
// Whatever the mix of chunks, cache hits, preemptions and cancellations, each sequence must get the output it
// gets alone.

#include <list>
#include <memory>
#include <random>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/engine/scripted_model.h"
#include "tests/support/random_operations.h"

namespace minfer::test {
namespace {

constexpr int32_t kVocabSize = 24;

EngineOptions random_options(std::mt19937_64& random) {
  const auto pick = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  EngineOptions options;
  options.block_size = pick(1, 5);
  options.num_blocks = pick(6, 40);
  options.max_model_len = pick(8, 90);
  options.max_num_seqs = pick(1, 8);
  options.enable_prefix_caching = pick(0, 3) > 0;
  options.enable_chunked_prefill = pick(0, 3) > 0;
  options.max_num_batched_tokens =
      options.enable_chunked_prefill ? pick(1, 40) : options.max_model_len + pick(0, 9);
  options.policy = static_cast<SchedulingPolicy>(pick(0, 2));
  options.kv_layout = KvLayout{};
  if (pick(0, 1) == 0) {
    const int32_t parts = pick(1, 4);
    options.kv_layout =
        KvLayout{.parts = parts, .window_parts = parts, .window = pick(1, 24), .has_window_table = true};
  }
  return options;
}

BlockHash random_hash(std::mt19937_64& random) {
  switch (random() % 3) {
    case 0:
      return [](uint64_t, std::span<const TokenId>) -> uint64_t { return 7; };
    case 1:
      return [](uint64_t parent, std::span<const TokenId> tokens) {
        return xxh3_block_hash(parent, tokens) % 3;
      };
    default:
      return xxh3_block_hash;
  }
}

BlockManagerOptions block_options(const EngineOptions& options, BlockHash hash) {
  BlockManagerOptions made = block_manager_options(options);
  made.hash = hash;
  return made;
}

/// Counts of a run, by which a test shows that it tested what it meant to.
struct RunCounts {
  int64_t finished = 0, cancelled = 0, refused = 0, preempted = 0, hit_tokens = 0, chunks = 0;
};

/// Engine, clients and model in one, with one random configuration.
class Traffic {
 public:
  Traffic(uint64_t seed, RunCounts& counts)
      : random_(seed),
        options_(random_options(random_)),
        blocks_(block_options(options_, random_hash(random_))),
        scheduler_(options_, blocks_),
        builder_(options_),
        model_(options_.num_blocks * options_.kv_layout->parts, options_.block_size, kVocabSize, seed,
               options_.kv_layout->window),
        counts_(counts) {}

  void arrive() {
    const bool shares_prefix = random_() % 4 != 0;
    std::vector<TokenId> prompt(pick(shares_prefix ? 1 : 0, options_.max_model_len + 1));
    for (size_t i = 0; i < prompt.size(); ++i)
      prompt[i] = shares_prefix ? static_cast<TokenId>(i % 3) : pick(0, 3);
    if (shares_prefix) prompt.back() = pick(0, 3);
    auto& added = sequences_.emplace_back(std::make_unique<Sequence>(
        fmt::format("request {}", num_arrived_++), prompt, pick(0, 30), pick(-1, 1)));
    const int32_t wanted = added->max_tokens;
    if (scheduler_.enqueue(*added)) {
      EXPECT_TRUE(added->num_prompt_tokens == 0 || wanted == 0 ||
                  added->num_prompt_tokens >= options_.max_model_len ||
                  blocks_.blocks_for(added->num_prompt_tokens) > options_.num_blocks);
      EXPECT_EQ(added->finish, FinishReason::refused);
      ++counts_.refused;
      sequences_.pop_back();
    }
  }

  void cancel_one() {
    if (sequences_.empty()) return;
    auto victim = sequences_.begin();
    std::advance(victim, random_() % sequences_.size());
    scheduler_.finish(**victim, FinishReason::cancelled);
    EXPECT_EQ((*victim)->num_held_blocks(), 0);
    sequences_.erase(victim);
    ++counts_.cancelled;
  }

  void step() {
    const ScheduledBatch& batch = scheduler_.schedule();
    check_batch(batch);
    const std::vector<TokenId> tokens = model_.forward(builder_.build(batch), batch);
    if (random_() % 16 == 0) cancel_scheduled(batch);
    size_t row = 0;
    for (const ScheduledSequence& each : batch.sequences) {
      const auto sampled = std::span(tokens).subspan(row, each.num_logit_rows);
      row += sampled.size();
      scheduler_.commit(each, sampled);
      if (!sampled.empty()) finish_if_done(*each.sequence);
    }
    EXPECT_EQ(row, tokens.size());
    counts_.preempted += batch.num_preempted;
    counts_.hit_tokens += batch.prefix_hit_tokens;
    std::erase_if(sequences_, [](const auto& each) { return each->status == SequenceStatus::finished; });
  }

  void check() const {
    blocks_.check(std::vector<const Sequence*>(scheduler_.running().begin(), scheduler_.running().end()));
  }

  /// Runs until nothing is left. A limit on the steps makes a livelock a failure.
  void drain() {
    for (int64_t steps = 0; scheduler_.has_work(); ++steps) {
      ASSERT_LT(steps, 100'000) << "no end in sight";
      step();
    }
    check();
    EXPECT_TRUE(sequences_.empty());
    EXPECT_EQ(blocks_.num_live(), 0);
  }

 private:
  int32_t pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }

  void check_batch(const ScheduledBatch& batch) {
    ASSERT_EQ(batch.empty(), !scheduler_.has_work()) << "work is there, but nothing is scheduled";
    ASSERT_LE(batch.num_tokens, options_.max_num_batched_tokens);
    ASSERT_LE(scheduler_.num_running(), options_.max_num_seqs);
    int32_t num_tokens = 0;
    bool first_advances = batch.empty();
    for (const ScheduledSequence& each : batch.sequences) {
      num_tokens += each.num_tokens;
      first_advances |= each.sequence == scheduler_.running()[0];
      if (each.num_logit_rows == 0) ++counts_.chunks;
      ASSERT_TRUE(options_.enable_chunked_prefill || each.num_logit_rows == 1) << "a chunk with chunking off";
      ASSERT_EQ(each.first_token, each.sequence->num_computed);
    }
    ASSERT_EQ(num_tokens, batch.num_tokens);
    ASSERT_TRUE(first_advances) << "the first in order does not advance";
  }

  void cancel_scheduled(const ScheduledBatch& batch) {
    if (batch.empty()) return;
    scheduler_.finish(*batch.sequences[random_() % batch.sequences.size()].sequence, FinishReason::cancelled);
    ++counts_.cancelled;
  }

  void finish_if_done(Sequence& sequence) {
    if (sequence.status != SequenceStatus::running) return;
    const bool ended = sequence.tokens.back() == ScriptedModel::kEnd;
    if (!ended && !sequence.reached_max_tokens()) return;
    const auto output = sequence.tokens.begin() + sequence.num_prompt_tokens;
    EXPECT_EQ(std::vector(output, sequence.tokens.end()),
              model_.run_alone({sequence.tokens.begin(), output}, sequence.max_tokens))
        << sequence.id << " after " << sequence.num_preemptions << " preemptions, "
        << sequence.num_cached_tokens << " cached tokens";
    scheduler_.finish(sequence, ended ? FinishReason::stop : FinishReason::length);
    ++counts_.finished;
  }

  std::mt19937_64 random_;
  EngineOptions options_;
  BlockManager blocks_;
  Scheduler scheduler_;
  BatchBuilder builder_;
  ScriptedModel model_;
  std::list<std::unique_ptr<Sequence>> sequences_;
  int64_t num_arrived_ = 0;
  RunCounts& counts_;
};

TEST(SchedulerModel, EveryOutputIsTheOneOfRunningAlone) {
  constexpr int64_t kOperationsPerTraffic = 500;
  RunCounts counts;
  for (int64_t i = 0; i < num_random_operations() / kOperationsPerTraffic; ++i) {
    const uint64_t seed = first_seed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(fmt::format("seed {}: repeat with {}={} {}={}", seed, kSeedVariable, seed,
                             kOperationsVariable, kOperationsPerTraffic));
    Traffic traffic(seed, counts);
    std::mt19937_64 random(seed);
    for (int64_t operation = 0; operation < kOperationsPerTraffic; ++operation) {
      const uint64_t kind = random() % 16;
      if (kind < 4) {
        traffic.arrive();
      } else if (kind == 4) {
        traffic.cancel_one();
      } else {
        traffic.step();
      }
      if (operation % 16 == 0) traffic.check();
      if (HasFailure()) return;
    }
    traffic.drain();
    if (HasFailure()) return;
  }
  // The traffic covered what the test is about.
  EXPECT_GT(counts.finished, 100);
  EXPECT_GT(counts.cancelled, 10);
  EXPECT_GT(counts.refused, 10);
  EXPECT_GT(counts.preempted, 100);
  EXPECT_GT(counts.hit_tokens, 1000);
  EXPECT_GT(counts.chunks, 100);
  RecordProperty("finished", std::to_string(counts.finished));
  RecordProperty("preempted", std::to_string(counts.preempted));
  RecordProperty("hit_tokens", std::to_string(counts.hit_tokens));
}

}  // namespace
}  // namespace minfer::test
