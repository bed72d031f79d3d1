#include "models/grammar/grammar_cache.h"

#include <atomic>
#include <future>
#include <thread>

#include <gmock/gmock.h>

#include "kernels/base/error.h"

namespace minfer {
namespace {

std::shared_ptr<const TokenTrie> small_vocabulary() {
  return std::make_shared<const TokenTrie>(*make_byte_tokenizer(300), 300);
}

GrammarCache::Build literal(std::string text) {
  return [text](GrammarBuilder& builder) { return builder.literal(text); };
}

bool takes_text(const std::shared_ptr<TokenGrammar>& grammar, std::string_view text) {
  GrammarMatcher matcher(grammar);
  return matcher.accept_bytes(text) && matcher.must_end();
}

/// Asks, compiles if that falls to this thread, and waits. Throws the error.
std::shared_ptr<TokenGrammar> get(GrammarCache& cache, const std::string& key,
                                  const GrammarCache::Build& build) {
  const auto promise = std::make_shared<std::promise<GrammarCache::Outcome>>();
  if (cache.ask(key, [promise](const GrammarCache::Outcome& outcome) { promise->set_value(outcome); }))
    cache.compile(key, build);
  const GrammarCache::Outcome outcome = promise->get_future().get();
  if (outcome.error) std::rethrow_exception(outcome.error);
  return outcome.grammar;
}

TEST(GrammarCacheTest, CompilesEqualGrammarsOnce) {
  int num_vocabularies = 0;
  GrammarCache cache(
      [&] {
        ++num_vocabularies;
        return small_vocabulary();
      },
      {});
  EXPECT_EQ(num_vocabularies, 0);
  const auto a = get(cache, "a", literal("a"));
  EXPECT_EQ(get(cache, "a", literal("something else")), a);
  EXPECT_TRUE(takes_text(get(cache, "b", literal("b")), "b"));
  EXPECT_TRUE(takes_text(a, "a"));
  EXPECT_GT(a->compile_ns, 0);
  EXPECT_EQ(num_vocabularies, 1);
  EXPECT_EQ(cache.counts().compiled, 2);
  EXPECT_EQ(cache.counts().reused, 1);
}

TEST(GrammarCacheTest, RefusesEqualGrammarsWithoutCompilingThemAgain) {
  GrammarCache cache(small_vocabulary, {});
  int num_built = 0;
  const auto refuse = [&](GrammarBuilder&) -> GrammarBuilder::Expr {
    ++num_built;
    fail<GrammarError>("no");
  };
  EXPECT_THROW(get(cache, "a", refuse), GrammarError);
  EXPECT_THROW(get(cache, "a", refuse), GrammarError);
  EXPECT_EQ(num_built, 1);
  EXPECT_EQ(cache.counts().refused, 2);
}

TEST(GrammarCacheTest, ForgetsWhatFailedForAnotherReason) {
  GrammarCache cache(small_vocabulary, {});
  const auto lack = [](GrammarBuilder&) -> GrammarBuilder::Expr { throw std::bad_alloc(); };
  EXPECT_THROW(get(cache, "a", lack), std::bad_alloc);
  EXPECT_TRUE(takes_text(get(cache, "a", literal("a")), "a"));
}

TEST(GrammarCacheTest, LiveGrammarsHaveABudget) {
  GrammarCache cache(small_vocabulary, {.max_bytes = 0, .max_live_bytes = 20'000, .limits = {}});
  std::vector<std::shared_ptr<TokenGrammar>> live;
  const auto add = [&] {
    const std::string text = std::to_string(live.size()) + std::string(100, 'x');
    live.push_back(get(cache, text, literal(text)));
  };
  EXPECT_THROW(
      {
        while (live.size() < 1000)
          add();
      },
      GrammarsFull);
  EXPECT_GT(live.size(), 2u);
  live.clear();
  add();
  EXPECT_TRUE(takes_text(live[0], "0" + std::string(100, 'x')));
}

TEST(GrammarCacheTest, ThoseThatWaitAreToldWhenItIsCompiled) {
  GrammarCache cache(small_vocabulary, {});
  std::vector<std::shared_ptr<TokenGrammar>> told;
  const auto tell = [&](const GrammarCache::Outcome& outcome) { told.push_back(outcome.grammar); };
  EXPECT_TRUE(cache.ask("a", tell));
  EXPECT_FALSE(cache.ask("a", tell));
  EXPECT_TRUE(cache.ask("b", tell));
  EXPECT_TRUE(told.empty());
  cache.compile("a", literal("a"));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_FALSE(cache.ask("a", tell));
  ASSERT_EQ(told.size(), 3u) << "at once";
  EXPECT_TRUE(takes_text(told[2], "a"));
  EXPECT_EQ(told[0], told[2]);
  EXPECT_EQ(cache.counts().compiled, 1);
}

TEST(GrammarCacheTest, DropsThoseUsedLeastRecently) {
  GrammarCache cache(small_vocabulary, {.max_bytes = 100'000, .limits = {}});
  const auto first = get(cache, "first", literal("first"));
  for (int i = 0; i < 200; ++i) {
    get(cache, "used often", literal("x"));
    get(cache, std::to_string(i), literal(std::to_string(i)));
    ASSERT_LE(cache.counts().bytes, 200'000u);
  }
  EXPECT_NE(get(cache, "first", literal("first")), first);
  const int64_t compiled = cache.counts().compiled;
  get(cache, "used often", literal("x"));
  EXPECT_EQ(cache.counts().compiled, compiled);
  EXPECT_TRUE(takes_text(first, "first"));  // its owner keeps it
}

TEST(GrammarCacheTest, ThreadsThatAskForTheSameWaitForOne) {
  GrammarCache cache(small_vocabulary, {});
  std::atomic<int> num_built = 0;
  std::vector<std::jthread> threads;
  std::vector<std::shared_ptr<TokenGrammar>> grammars(8);
  for (std::shared_ptr<TokenGrammar>& grammar : grammars) {
    threads.emplace_back([&] {
      grammar = get(cache, "x", [&](GrammarBuilder& builder) {
        ++num_built;
        return builder.repeat(builder.literal("abc"), 1, 400);
      });
      GrammarMatcher matcher(grammar);
      while (matcher.accept_bytes("abc"))
        (void)matcher.mask();
    });
  }
  threads.clear();
  EXPECT_EQ(num_built, 1);
  for (const std::shared_ptr<TokenGrammar>& grammar : grammars)
    EXPECT_EQ(grammar, grammars.front());
}

}  // namespace
}  // namespace minfer
