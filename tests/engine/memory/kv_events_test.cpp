// What a mirror of the prefix cache hears from the block manager, and from an engine that is short of blocks.
#include "engine/memory/kv_events.h"

#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine/engine_run.h"
#include "tests/support/engine/kv_mirror.h"
#include "tests/support/engine/tiny_engine.h"

namespace minfer::test {
namespace {

using Kind = KvEventBatch::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

uint64_t same_hash(uint64_t, std::span<const TokenId>) {
  return 7;
}

class KvEvents : public ::testing::Test {
 protected:
  static constexpr int32_t kTokens = 4;  // tokens of a block

  explicit KvEvents(int32_t num_blocks = 6, BlockHash hash = xxh3_block_hash)
      : blocks_({.num_blocks = num_blocks, .block_size = kTokens, .hash_key = 5, .hash = hash}) {
    events_.block_size = kTokens;
    blocks_.record_events(&events_);
  }

  static std::unique_ptr<Sequence> tokens(int32_t count, TokenId first = 0, std::string salt = "") {
    std::vector<TokenId> prompt(static_cast<size_t>(count));
    std::iota(prompt.begin(), prompt.end(), first);
    auto sequence = std::make_unique<Sequence>("s", std::move(prompt), 1);
    sequence->cache_salt = std::move(salt);
    return sequence;
  }

  /// As if a step had computed the first `num_tokens`.
  void compute(Sequence& sequence, int32_t num_tokens) {
    ASSERT_TRUE(blocks_.allocate(sequence, num_tokens));
    sequence.num_scheduled = sequence.num_computed = num_tokens;
    blocks_.publish(sequence);
  }
  std::unique_ptr<Sequence> computed(int32_t count, TokenId first = 0, std::string salt = "") {
    auto sequence = tokens(count, first, std::move(salt));
    compute(*sequence, count);
    return sequence;
  }

  /// The kinds of the events since the last call, in order.
  std::vector<Kind> take() {
    mirror_.apply(events_);
    std::vector<Kind> kinds;
    for (const KvEventBatch::Event& event : events_.events)
      kinds.push_back(event.kind);
    last_ = std::exchange(events_, {});
    events_.block_size = kTokens;
    return kinds;
  }

  BlockManager blocks_;
  KvEventBatch events_, last_;
  KvMirror mirror_;
};

TEST_F(KvEvents, AChainIsOneEventWithItsTokens) {
  const auto a = computed(9);
  EXPECT_THAT(take(), ElementsAre(Kind::stored));
  EXPECT_EQ(last_.events[0].num_blocks, 2);
  EXPECT_EQ(last_.events[0].parent, std::nullopt);
  EXPECT_THAT(last_.hashes, ElementsAre(a->block_hashes[0], a->block_hashes[1]));
  EXPECT_THAT(last_.tokens, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(KvEvents, WhatComesLaterNamesItsParent) {
  const auto a = tokens(12);
  compute(*a, 7);
  EXPECT_THAT(take(), ElementsAre(Kind::stored));
  compute(*a, 12);
  EXPECT_THAT(take(), ElementsAre(Kind::stored));
  EXPECT_EQ(last_.events[0].parent, a->block_hashes[0]);
  EXPECT_EQ(last_.events[0].num_blocks, 2);
}

TEST_F(KvEvents, ABlockIsRemovedWhenItIsTakenNotWhenItIsReleased) {
  const auto a = computed(9);
  take();
  blocks_.release(*a);
  EXPECT_THAT(take(), IsEmpty());
  const auto b = tokens(24, 50);
  ASSERT_TRUE(blocks_.allocate(*b, 24));
  EXPECT_THAT(take(), ElementsAre(Kind::removed));
  EXPECT_THAT(last_.hashes, ElementsAre(a->block_hashes[1], a->block_hashes[0])) << "the tail first";
  EXPECT_EQ(mirror_.size(), 0u);
}

TEST_F(KvEvents, ReuseIsNoEvent) {
  const auto a = computed(9);
  blocks_.release(*a);
  take();
  const auto b = tokens(9);
  PrefixMatch match;
  blocks_.match_prefix(*b, match);
  ASSERT_EQ(match.blocks.size(), 2u);
  blocks_.adopt_prefix(*b, match);
  compute(*b, 9);
  blocks_.release(*b);
  EXPECT_THAT(take(), IsEmpty());
}

TEST_F(KvEvents, TwinsAreStoredOnceAndRemovedWithTheLast) {
  const auto a = computed(4), b = computed(12);
  EXPECT_THAT(take(), ElementsAre(Kind::stored)) << "the first block once, and those behind it";
  EXPECT_EQ(last_.events[0].num_blocks, 3);
  blocks_.release(*a);
  const auto c = tokens(12, 100);
  ASSERT_TRUE(blocks_.allocate(*c, 12));
  EXPECT_EQ(blocks_.num_free(), 0);
  EXPECT_THAT(take(), IsEmpty()) << "the first copy is gone, b's is there";
  blocks_.release(*c);
  blocks_.release(*b);
  const auto d = tokens(24, 200);
  ASSERT_TRUE(blocks_.allocate(*d, 24));
  EXPECT_THAT(take(), ElementsAre(Kind::removed));
  EXPECT_EQ(mirror_.size(), 0u);
}

TEST_F(KvEvents, SaltedPrefixesAreNobodysBusiness) {
  const auto a = computed(9, 0, "tenant");
  blocks_.release(*a);
  const auto b = tokens(24, 50);
  ASSERT_TRUE(blocks_.allocate(*b, 24));
  EXPECT_THAT(take(), IsEmpty());
}

TEST_F(KvEvents, TheWholeIsTheSameAsTheParts) {
  const auto a = computed(9), b = computed(8, 50), salted = computed(4, 0, "tenant");
  blocks_.release(*b);
  take();
  const auto before = mirror_.prefixes();
  blocks_.announce_all();
  EXPECT_EQ(take().front(), Kind::cleared);
  EXPECT_EQ(mirror_.prefixes(), before);
  EXPECT_EQ(before.size(), 4u);
}

TEST_F(KvEvents, NothingIsRecordedAfterTheEnd) {
  const auto a = computed(9);
  take();
  blocks_.record_events(nullptr);
  const auto b = computed(4, 50);
  EXPECT_THAT(take(), IsEmpty());
}

class KvEventsOfEqualHashes : public KvEvents {
 protected:
  KvEventsOfEqualHashes() : KvEvents(6, same_hash) {}
};

// A hash that stood for two prefixes would send requests with the second to a place that has only the first.
TEST_F(KvEventsOfEqualHashes, OneContentIsAnnounced) {
  const auto a = computed(8), b = computed(8, 50);
  EXPECT_THAT(take(), ElementsAre(Kind::stored));
  EXPECT_EQ(last_.events[0].num_blocks, 1) << "the second has the hash of the first";
  blocks_.release(*b);
  const auto c = tokens(16, 100);
  ASSERT_TRUE(blocks_.allocate(*c, 16));
  EXPECT_THAT(take(), IsEmpty()) << "what was not announced is not removed";
  blocks_.release(*a);
  blocks_.release(*c);
  const auto d = tokens(24, 200);
  ASSERT_TRUE(blocks_.allocate(*d, 24));
  EXPECT_THAT(take(), ElementsAre(Kind::removed));
}

/// Accepts batches unless it is told to lose them.
class LossySink final : public KvEventSink {
 public:
  bool wants_all() override { return std::exchange(wants_all_, false); }
  void take(KvEventBatch& batch) override {
    if (loses) return;
    ++num_batches;
    mirror.apply(batch);
    KvEventBatch taken;
    std::swap(taken, batch);
  }
  void recover() {
    loses = false;
    wants_all_ = true;
  }

  bool loses = false;
  int num_batches = 0;
  KvMirror mirror;

 private:
  bool wants_all_ = true;
};

TEST(KvEventFeed, AfterALossComesTheWhole) {
  BlockManager blocks({.num_blocks = 8, .block_size = 4});
  LossySink sink;
  KvEventFeed feed(blocks, sink);
  const auto compute = [&](TokenId first) {
    auto sequence = std::make_unique<Sequence>("s", std::vector<TokenId>(8, first), 1);
    EXPECT_TRUE(blocks.allocate(*sequence, 8));
    sequence->num_scheduled = sequence->num_computed = 8;
    blocks.publish(*sequence);
    blocks.release(*sequence);
    feed.end_step();
  };
  compute(1);
  EXPECT_EQ(sink.mirror.size(), 2u);
  feed.end_step();
  EXPECT_EQ(sink.num_batches, 1) << "a step without a change is no batch";
  sink.loses = true;
  for (const TokenId first : {2, 3, 4, 5})
    compute(first);
  sink.recover();
  compute(6);
  EXPECT_EQ(sink.num_batches, 2);
  std::set<std::vector<TokenId>> cached;
  for (const TokenId first : {3, 4, 5, 6}) {
    cached.emplace(4, first);
    cached.emplace(8, first);
  }
  EXPECT_EQ(sink.mirror.prefixes(), cached);
}

/// Counts preemptions.
class PreemptionCounter final : public StepSink {
 public:
  void consume(const StepRecord& record) noexcept override { count += record.batch.preempted; }
  bool wants_requests() const noexcept override { return false; }
  int32_t count = 0;
};

/// The number of a prompt's tokens that a mirror takes to be cached: whole blocks, and never the last token.
int32_t predicted_hit(const std::set<std::vector<TokenId>>& cached, const std::vector<TokenId>& prompt,
                      int32_t block_size) {
  const auto num_tokens = static_cast<int32_t>(prompt.size());
  int32_t hit = 0;
  while (hit + block_size < num_tokens &&
         cached.contains(std::vector(prompt.begin(), prompt.begin() + hit + block_size))) {
    hit += block_size;
  }
  return hit;
}

// The mirror is right if it predicts the hit of each request, while requests share prefixes, evict each other and are preempted.
TEST(EngineKvEvents, AMirrorForetellsWhatIsCached) {
  EngineOptions options = tiny_engine_options();
  options.max_model_len = 96;
  options.num_blocks = 24;
  options.block_size = 4;
  LossySink sink;
  PreemptionCounter preemptions;
  const std::unique_ptr<Engine> engine = make_tiny_engine(options);
  engine->set_kv_event_sink(sink);
  engine->recorder().add_sink(preemptions);
  std::mt19937 random(1);
  const auto pick = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  Answers answers;
  int32_t num_hits = 0, num_misses = 0;
  for (int32_t i = 0; i < 60; ++i) {
    std::vector<Request> requests;
    for (int32_t n = pick(1, 6); n > 0; --n) {
      Request& request = requests.emplace_back();
      request.id = fmt::format("{}-{}", i, n);
      request.prompt.assign(static_cast<size_t>(pick(1, 40)), 300 + pick(0, 2));
      request.prompt.back() = 300 + pick(0, 9);
      if (pick(0, 9) == 0) request.cache_salt = "tenant";
      request.sampling.max_tokens = pick(1, 30);
      request.sampling.ignore_eos = true;
    }
    const bool is_alone = requests.size() == 1 && requests[0].cache_salt.empty();
    const int32_t predicted = predicted_hit(sink.mirror.prefixes(), requests[0].prompt, options.block_size);
    for (const Request& request : requests)
      engine->submit(request);
    answers.run(*engine);
    if (!is_alone) continue;
    EXPECT_EQ(answers.at(requests[0].id).last.cached_tokens, predicted) << requests[0].id;
    ++(predicted > 0 ? num_hits : num_misses);
    if (i % 10 == 0) sink.recover();  // asks for everything again
  }
  engine->recorder().remove_sink(preemptions);
  EXPECT_GT(num_hits, 2);
  EXPECT_GT(preemptions.count, 5);
}

}  // namespace
}  // namespace minfer::test
