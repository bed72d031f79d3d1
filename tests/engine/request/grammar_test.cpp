// Requests with a grammar: their text, and how they end.
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine/grammar_requests.h"
#include "tests/support/engine/scripted_backend.h"
#include "tests/support/engine/tiny_engine.h"

namespace minfer {
namespace {

using test::Answer;
using test::answer_of;
using test::Answers;
using test::constrained_request;
using test::grammar_for;
using test::kTinyEnd;
using test::kTinyPrompt;
using test::tiny_byte;
using ::testing::HasSubstr;

class GrammarEngine : public testing::Test {
 protected:
  Request request(const test::GrammarRoot& root, uint64_t seed = 1) {
    return constrained_request("a", kTinyPrompt, grammar_for(*engine_, root), seed);
  }
  Answer answer(const Request& request) { return answer_of(*engine_, request); }

  std::unique_ptr<Engine> engine_ = test::make_tiny_engine();
};

TEST_F(GrammarEngine, TextsAreThoseOfTheGrammar) {
  const std::regex pattern(test::kRecordPattern);
  std::set<std::string> texts;
  for (const float temperature : {0.0f, 1.0f, 3.0f}) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      Request each = request(test::record_grammar(), seed);
      each.sampling.temperature = temperature;
      each.sampling.top_k = seed % 2 == 0 ? 0 : 5;
      each.sampling.top_p = seed % 3 == 0 ? 1.0f : 0.5f;
      const Answer found = answer(each);
      EXPECT_TRUE(std::regex_match(found.text, pattern)) << found.text;
      EXPECT_EQ(found.last.finish, FinishReason::stop);
      texts.insert(found.text);
    }
  }
  EXPECT_GT(texts.size(), 10u) << "what the grammar leaves open is drawn";
}

TEST_F(GrammarEngine, ATextThatNothingCanFollowEndsAtOnce) {
  for (const bool ignore_eos : {false, true}) {
    Request abc = request(test::literal("abc"));
    abc.sampling.ignore_eos = ignore_eos;
    abc.sampling.min_tokens = 20;
    const int64_t first_step = engine_->next_step();
    const Answer found = answer(abc);
    EXPECT_EQ(found.text, "abc");
    EXPECT_EQ(found.tokens.size(), 3u) << "no end token";
    EXPECT_EQ(found.last.finish, FinishReason::stop);
    EXPECT_EQ(engine_->next_step() - first_step, 1) << "and no step for one";
  }
}

TEST_F(GrammarEngine, AWholeTextMayEndByAnEndToken) {
  Request some = request(test::digits(1, 5));
  some.sampling.logit_bias = {{kTinyEnd, 100.0f}};
  Answer found = answer(some);
  EXPECT_EQ(found.text.size(), 1u) << "not before the first digit";
  EXPECT_EQ(found.tokens.back(), kTinyEnd);
  EXPECT_EQ(found.last.finish, FinishReason::stop);

  some.sampling.min_tokens = 3;
  found = answer(some);
  EXPECT_EQ(found.text.size(), 3u);
  EXPECT_EQ(found.last.finish, FinishReason::stop);

  some.sampling.ignore_eos = true;
  found = answer(some);
  EXPECT_EQ(found.text.size(), 5u);
  EXPECT_EQ(found.last.finish, FinishReason::stop);
}

// An end token is among the stop tokens, which min_tokens would forbid without a grammar.
TEST_F(GrammarEngine, EndTokensAreTheMasksBusinessAlone) {
  Request nothing = request(test::literal(""));
  nothing.sampling.ignore_eos = true;
  nothing.sampling.min_tokens = 10;
  nothing.sampling.stop_token_ids = {kTinyEnd};
  const Answer found = answer(nothing);
  EXPECT_EQ(found.text, "");
  EXPECT_EQ(found.tokens, std::vector<TokenId>{kTinyEnd});
  EXPECT_EQ(found.last.finish, FinishReason::stop);
}

TEST_F(GrammarEngine, IgnoredEndTokensEndATextThatTheVocabularyCannotGoOnWith) {
  Request ab = request([](GrammarBuilder& b) {
    return b.sequence({b.literal("ab"), b.optional(b.literal("\xff<no such token>"))});
  });
  ab.sampling.ignore_eos = true;
  const Answer found = answer(ab);
  EXPECT_EQ(found.text, "ab");
  EXPECT_EQ(found.tokens.back(), kTinyEnd);
  EXPECT_EQ(found.last.finish, FinishReason::stop);
}

TEST_F(GrammarEngine, BiasesChooseAmongWhatIsAllowed) {
  Request some = request(test::digits(4, 4));
  some.sampling.logit_bias = {{tiny_byte('7'), 100.0f}, {tiny_byte('x'), 100.0f}};
  EXPECT_EQ(answer(some).text, "7777");
  some.sampling.logit_bias.clear();
  some.sampling.temperature = 0.0f;
  some.sampling.frequency_penalty = 2.0f;
  some.sampling.presence_penalty = 2.0f;
  const std::string text = answer(some).text;
  EXPECT_EQ(std::set<char>(text.begin(), text.end()).size(), 4u) << text;
}

TEST_F(GrammarEngine, OtherEndsCutTheText) {
  const test::GrammarRoot abc = test::literal("abcdefghij");
  for (const int32_t logprobs :
       {-1, 0}) {  // with and without a step that tokens wait for if no draw is needed for them
    Request each = request(abc);
    each.sampling.logprobs = logprobs;
    each.sampling.max_tokens = 4;
    Answer found = answer(each);
    EXPECT_EQ(found.text, "abcd");
    EXPECT_EQ(found.last.finish, FinishReason::length);

    each.sampling.max_tokens = 10;
    found = answer(each);
    EXPECT_EQ(found.text, "abcdefghij");
    EXPECT_EQ(found.last.finish, FinishReason::stop) << "the last token makes it whole";

    each.sampling.max_tokens = 100;
    each.sampling.stop = {"zz", "de"};
    found = answer(each);
    EXPECT_EQ(found.text, "abc");
    EXPECT_EQ(found.tokens.size(), 5u);
    EXPECT_EQ(found.last.finish, FinishReason::stop);
    EXPECT_EQ(found.last.finish_detail, "de");

    each.sampling.min_tokens = 6;
    EXPECT_EQ(answer(each).text, "abcdefghij") << "a stop string within min_tokens is text";

    each.sampling.min_tokens = 0;
    each.sampling.stop.clear();
    each.sampling.stop_token_ids = {tiny_byte('e')};
    found = answer(each);
    EXPECT_EQ(found.text, "abcd");
    EXPECT_EQ(found.tokens.size(), 5u);
    EXPECT_EQ(found.last.finish, FinishReason::stop);

    each.sampling.min_tokens = 8;
    found = answer(each);
    EXPECT_EQ(found.text, "abcd");
    EXPECT_EQ(found.last.finish, FinishReason::error) << "min_tokens forbids what alone is allowed";
  }
}

TEST_F(GrammarEngine, ATextThatCannotGoOnIsAnErrorOfThatRequest) {
  engine_->submit(request(test::dead_end_after("ab")));
  engine_->submit(test::greedy_request("free", kTinyPrompt, 9));
  Answers answers;
  answers.run(*engine_);
  const Answer& found = answers.at("a");
  EXPECT_EQ(found.text, "ab") << "what came before stands";
  EXPECT_EQ(found.last.finish, FinishReason::error);
  EXPECT_THAT(found.last.finish_detail, HasSubstr("the grammar allows no token after the 2 generated"));
  EXPECT_EQ(answers.at("free").tokens.size(), 9u);
  EXPECT_EQ(engine_->scheduler().blocks().num_live(), 0);
}

/// After n times "a" a text can be in 2^n places.
GrammarBuilder::Expr ambiguous(GrammarBuilder& b) {
  const GrammarBuilder::Rule t = b.add_rule("t"), u = b.add_rule("u");
  const GrammarBuilder::Expr a = b.literal("a");
  b.define(t, b.choice({b.sequence({a, b.reference(t), b.literal("x")}),
                        b.sequence({a, b.reference(u), b.literal("y")}), a}));
  b.define(u, b.choice({b.sequence({a, b.reference(u), b.literal("x")}),
                        b.sequence({a, b.reference(t), b.literal("y")}), b.literal("b")}));
  return b.reference(t);
}

TEST_F(GrammarEngine, AGrammarThatIsTooAmbiguousIsAnErrorOfThatRequest) {
  Request many = request(ambiguous);
  many.sampling.logit_bias = {{tiny_byte('a'), 100.0f}};
  engine_->submit(many);
  engine_->submit(test::greedy_request("free", kTinyPrompt, 30));
  Answers answers;
  answers.run(*engine_);
  EXPECT_EQ(answers.at("a").last.finish, FinishReason::error);
  EXPECT_THAT(answers.at("a").last.finish_detail, HasSubstr("too ambiguous"));
  EXPECT_GT(answers.at("a").text.size(), 5u);
  EXPECT_EQ(answers.at("free").tokens.size(), 30u);
}

/// Steps until the request has its next token, or its end. Returns the number of steps.
int steps_to_next(Engine& engine, Answers& answers, const std::string& id) {
  const auto num_tokens = [&] { return answers.contains(id) ? answers.at(id).tokens.size() : 0; };
  const size_t before = num_tokens();
  int num_steps = 0;
  for (; engine.has_work() && num_tokens() == before; ++num_steps)
    answers.step(engine);
  return num_steps;
}

// Each mask takes some 1,500,000 units of work (see GrammarWork): more than a step does.
TEST_F(GrammarEngine, OthersGoOnWhileAMaskIsMade) {
  Request slow = request(test::many_rules(9000));
  slow.sampling.logit_bias = {{tiny_byte('i'), -100.0f}};
  engine_->submit(slow);
  engine_->submit(test::greedy_request("free", kTinyPrompt, 60));
  Answers answers;
  steps_to_next(*engine_, answers, "a");
  const size_t num_free = answers.at("free").tokens.size();
  EXPECT_GT(steps_to_next(*engine_, answers, "a"), 2);
  EXPECT_GT(answers.at("free").tokens.size(), num_free + 2) << "a token in each step";
  for (int i = 0; i < 5; ++i)
    EXPECT_GT(steps_to_next(*engine_, answers, "a"), 1);
  engine_->cancel("a");
  answers.run(*engine_);
  EXPECT_EQ(answers.at("a").last.finish, FinishReason::cancelled);
  EXPECT_EQ(answers.at("free").tokens.size(), 60u);
  EXPECT_EQ(engine_->scheduler().blocks().num_live(), 0);

  const Answer alone = answer(request(test::many_rules(9000)));
  EXPECT_TRUE(std::regex_match(alone.text, std::regex("[a-d]*i[e-h]*"))) << alone.text;
}

TEST_F(GrammarEngine, AMaskThatIsBeingMadeEndsWithItsRequest) {
  engine_->submit(request(test::many_rules(9000)));
  Answers answers;
  answers.step(*engine_);
  answers.step(*engine_);
  ASSERT_TRUE(engine_->has_work());
  EXPECT_EQ(answers.at("a").tokens.size(), 1u) << "it is followed still";
  engine_->cancel("a");
  EXPECT_EQ(engine_->scheduler().blocks().num_live(), 0);
  answers.step(*engine_);
  EXPECT_EQ(answers.at("a").last.finish, FinishReason::cancelled);
  EXPECT_FALSE(engine_->has_work());
}

// Refused at submission: the engine holds nothing of them then.
TEST_F(GrammarEngine, RefusesWhatItCannotHonour) {
  EXPECT_THROW(engine_->submit(request(test::dead_end_after(""))), GrammarError);

  GrammarBuilder builder;
  const auto other =
      std::make_shared<TokenGrammar>(compile_grammar(builder, builder.literal("a")),
                                     std::make_shared<const TokenTrie>(engine_->tokenizer(), 600));
  try {
    engine_->submit(constrained_request("a", kTinyPrompt, other));
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("600"));
    EXPECT_THAT(error.what(), HasSubstr("expected 512"));
  }
  EXPECT_FALSE(engine_->has_work());
  EXPECT_EQ(answer(request(test::literal("ab"))).text, "ab") << "the id is free";
}

TEST(GrammarEngineWithoutMasks, RefusesGrammarsNamingTheBackend) {
  EngineOptions options = test::tiny_engine_options();
  Engine engine(open_model("synthetic:tiny:f32"), options, {},
                std::make_unique<test::ScriptedBackend>(
                    test::ScriptedBackend::Options{.num_blocks = options.num_blocks, .vocab_size = 512}));
  const Request request = constrained_request("a", kTinyPrompt, grammar_for(engine, test::literal("a")));
  try {
    engine.submit(request);
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("grammar: the cpu backend"));
  }
}

}  // namespace
}  // namespace minfer
