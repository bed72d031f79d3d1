// Tokens that a grammar forces are taken without drawing them; and requests with grammars among others.
#include <map>
#include <regex>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/engine/grammar_requests.h"
#include "tests/support/engine/tiny_engine.h"

namespace minfer {
namespace {

using test::Answer;
using test::Answers;
using test::constrained_request;
using test::grammar_for;
using test::kTinyPrompt;

struct ConstrainedRun {
  Answers answers;
  int64_t num_steps = 0;
  int64_t num_forced = 0;
  int64_t num_constrained_rows = 0;
  int64_t num_preempted = 0;
};

ConstrainedRun run_all(Engine& engine, const std::vector<Request>& requests) {
  ConstrainedRun run;
  const int64_t first_step = engine.next_step();
  for (const Request& request : requests)
    engine.submit(request);
  run.answers.run(engine);
  run.num_steps = engine.next_step() - first_step;
  for (const StepRecord& record : engine.recorder().after(first_step - 1)) {
    run.num_forced += record.batch.forced_tokens;
    run.num_constrained_rows += record.batch.constrained_rows;
    run.num_preempted += record.batch.preempted;
  }
  EXPECT_EQ(engine.scheduler().blocks().num_live(), 0);
  return run;
}

TEST(ForcedTokens, ALongFixedTextTakesFewSteps) {
  const std::string text = "It is a truth universally acknowledged, that a single man";
  const auto engine = test::make_tiny_engine();
  Request request = constrained_request("a", kTinyPrompt, grammar_for(*engine, test::literal(text)));
  const ConstrainedRun run = run_all(*engine, {request});
  const Answer& found = run.answers.at("a");
  EXPECT_EQ(found.text, text);
  EXPECT_EQ(found.tokens.size(), text.size());
  EXPECT_EQ(found.last.output_tokens, static_cast<int32_t>(text.size()));
  EXPECT_EQ(run.num_steps, 1) << "the first token; the others follow from it";
  EXPECT_EQ(run.num_forced, static_cast<int64_t>(text.size()) - 1);
  EXPECT_EQ(run.num_constrained_rows, 1);
}

/// `found` as a prompt, behind its request's own: the logprobs of its tokens, as for any text.
std::vector<SampledToken> scored_alone(Engine& engine, Request request, const Answer& found) {
  request.prompt.insert(request.prompt.end(), found.tokens.begin(), found.tokens.end());
  request.grammar = nullptr;
  const int32_t num_top = request.sampling.logprobs;
  request.sampling = SamplingParams();
  request.sampling.max_tokens = 0;
  request.sampling.prompt_logprobs = num_top;
  const std::vector<SampledToken> scores = test::answer_of(engine, request).prompt_logprobs;
  return {scores.end() - std::ssize(found.tokens), scores.end()};
}

void expect_scores(const Answer& found, const std::vector<SampledToken>& expected) {
  ASSERT_EQ(found.logprobs.size(), found.tokens.size());
  ASSERT_EQ(expected.size(), found.tokens.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found.logprobs[i].token, found.tokens[i]);
    EXPECT_EQ(found.logprobs[i].logprob, expected[i].logprob) << i;
    ASSERT_EQ(found.logprobs[i].top.size(), expected[i].top.size());
    for (size_t k = 0; k < expected[i].top.size(); ++k) {
      EXPECT_EQ(found.logprobs[i].top[k].token, expected[i].top[k].token);
      EXPECT_EQ(found.logprobs[i].top[k].logprob, expected[i].top[k].logprob);
    }
  }
}

// Subwords: a mask allows other divisions of a forced text than the tokeniser's.
TEST(ForcedTokens, WhatIsObservedDoesNotChangeTheAnswer) {
  for (const int32_t steps_ahead : {0, 1}) {
    EngineOptions options = test::tiny_engine_options();
    options.steps_ahead = steps_ahead;
    options.max_num_batched_tokens = 16;
    Engine engine(open_model(""), options);
    const auto fixed = grammar_for(
        engine, test::literal(R"({"name": "Paul", "age": 12, "place": "London", "people": "many"})"));
    const auto record = grammar_for(engine, test::record_grammar());
    for (uint64_t seed = 0; seed < 9; ++seed) {
      Request request =
          constrained_request("a", engine.tokenizer().encode("A record:"), seed < 3 ? fixed : record, seed);
      if (seed % 2 == 0) request.sampling.temperature = 0.0f;
      if (seed % 3 == 1) request.sampling.max_tokens = 17;
      if (seed % 3 == 2) request.sampling.stop = {"London", "\", \"k", "l"};
      const ConstrainedRun plain = run_all(engine, {request});
      const Answer& expected = plain.answers.at("a");
      for (const int32_t logprobs : {-1, 0, 3}) {
        for (const int32_t interval : {1, 5, 64}) {
          Request observed = request;
          observed.sampling.logprobs = logprobs;
          observed.sampling.prompt_logprobs = logprobs;
          observed.sampling.stream_interval = interval;
          const ConstrainedRun run = run_all(
              engine, {observed, test::greedy_request("free", test::kTinyPrompt, interval == 5 ? 50 : 1)});
          const Answer& found = run.answers.at("a");
          EXPECT_EQ(found.text, expected.text) << "seed " << seed << ", logprobs " << logprobs;
          EXPECT_EQ(found.tokens, expected.tokens) << "seed " << seed << ", logprobs " << logprobs;
          EXPECT_EQ(found.last.finish, expected.last.finish);
          EXPECT_EQ(found.last.finish_detail, expected.last.finish_detail);
          EXPECT_EQ(run.num_forced, plain.num_forced);
          if (logprobs >= 0) expect_scores(found, scored_alone(engine, observed, found));
        }
      }
    }
  }
}

// One-byte tokens divide a text in one way only. With logprobs they wait for one more step, and are the same.
TEST(ForcedTokens, WithLogprobsWaitForThem) {
  const auto engine = test::make_tiny_engine();
  const auto grammar = grammar_for(*engine, test::record_grammar());
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Request request = constrained_request("a", kTinyPrompt, grammar, seed);
    request.sampling.temperature = seed % 4 == 0 ? 0.0f : 1.5f;
    request.sampling.stream_interval = 1 + static_cast<int32_t>(seed % 5);
    if (seed % 2 == 0) request.sampling.frequency_penalty = 1.0f;
    if (seed % 3 == 0) request.sampling.repetition_penalty = 1.2f;
    if (seed % 5 == 0) request.sampling.max_tokens = 30;
    if (seed % 5 == 1) request.sampling.stop = {"\", \"k"};
    if (seed % 5 == 2) request.sampling.stop_token_ids = {test::tiny_byte('g')};
    const ConstrainedRun forced = run_all(*engine, {request});
    request.sampling.logprobs = 0;
    const ConstrainedRun scored = run_all(*engine, {request});
    const Answer& a = forced.answers.at("a");
    const Answer& b = scored.answers.at("a");
    EXPECT_EQ(a.text, b.text) << "seed " << seed;
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.last.finish, b.last.finish);
    EXPECT_EQ(a.last.finish_detail, b.last.finish_detail);
    EXPECT_EQ(scored.num_forced, forced.num_forced);
    EXPECT_GE(forced.num_forced, 8);
    EXPECT_LE(scored.num_steps, forced.num_steps + 1);
    expect_scores(b, scored_alone(*engine, request, b));
  }
}

// Subwords with merges: the text matters, and that the tokens are the tokeniser's. SentencePiece puts a space in front of texts.
TEST(ForcedTokens, OfASentencePieceVocabularyAreWithoutItsSpace) {
  Engine engine(open_model(""), test::tiny_engine_options());
  const std::string text = R"({"name": "Paul", "age": 12, "place": "London", "people": "many"})";
  Request request = constrained_request("a", engine.tokenizer().encode("A record:"),
                                        grammar_for(engine, test::literal(text)));
  const ConstrainedRun run = run_all(engine, {request});
  const Answer& found = run.answers.at("a");
  EXPECT_EQ(found.text, text);
  EXPECT_EQ(found.last.finish, FinishReason::stop);
  EXPECT_LT(run.num_steps, 4);
  EXPECT_LT(found.tokens.size(), text.size() * 2 / 3) << "tokens of several bytes";

  // A fixed text that can continue in several ways: its last token is drawn.
  const std::regex pattern(test::kRecordPattern);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Request record = constrained_request("a", engine.tokenizer().encode("A record:"),
                                         grammar_for(engine, test::record_grammar()), seed);
    const ConstrainedRun each = run_all(engine, {record});
    EXPECT_TRUE(std::regex_match(each.answers.at("a").text, pattern)) << each.answers.at("a").text;
    EXPECT_GT(each.num_forced, 3);
  }
}

TEST(ForcedTokens, MayEndWithinACharacter) {
  const auto engine = test::make_tiny_engine();
  // Two characters with the same first two bytes.
  const auto grammar = grammar_for(*engine, [](GrammarBuilder& b) {
    return b.sequence({b.literal("so: "), b.choice({b.literal("\xe2\x82\xac"), b.literal("\xe2\x82\xad")}),
                       b.literal("!")});
  });
  std::set<std::string> texts;
  for (uint64_t seed = 0; seed < 12; ++seed)
    texts.insert(
        run_all(*engine, {constrained_request("a", kTinyPrompt, grammar, seed)}).answers.at("a").text);
  EXPECT_EQ(texts, (std::set<std::string>{"so: \xe2\x82\xac!", "so: \xe2\x82\xad!"}));
}

/// Requests of several kinds without grammars, and among them as many with grammars.
struct MixedRequests {
  std::vector<Request> free, constrained;
  std::vector<Request> all() const {
    std::vector<Request> mixed;
    for (size_t i = 0; i < free.size(); ++i) {
      mixed.push_back(constrained[i]);
      mixed.push_back(free[i]);
    }
    return mixed;
  }
};

MixedRequests mixed_requests(const Engine& engine) {
  MixedRequests mixed;
  const auto grammar = grammar_for(engine, test::record_grammar());
  for (int32_t i = 0; i < 6; ++i) {
    std::vector<TokenId> prompt = kTinyPrompt;
    prompt.resize(static_cast<size_t>(3 + 3 * i));
    prompt.back() = 400 + i;
    Request free = test::greedy_request("free" + std::to_string(i), prompt, 40 + i);
    free.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    free.sampling.seed = static_cast<uint64_t>(i);
    free.sampling.logprobs = i % 3 - 1;
    if (i == 3) free.sampling.presence_penalty = 1.0f;
    mixed.free.push_back(std::move(free));
    prompt.back() = 300 + i;
    Request bound =
        constrained_request("bound" + std::to_string(i), prompt, grammar, static_cast<uint64_t>(i));
    if (i == 1) bound.sampling.prompt_logprobs = 2;
    if (i == 2) bound.sampling.logprobs = 1;
    if (i == 3) bound.sampling.frequency_penalty = 0.5f;
    mixed.constrained.push_back(std::move(bound));
  }
  return mixed;
}

void expect_same(const Answers& found, const std::map<std::string, Answer>& expected,
                 const std::vector<Request>& requests, const char* what) {
  for (const Request& request : requests) {
    const Answer& a = found.at(request.id);
    const Answer& b = expected.at(request.id);
    EXPECT_EQ(a.text, b.text) << what << ", " << request.id;
    EXPECT_EQ(a.tokens, b.tokens) << what << ", " << request.id;
    EXPECT_EQ(a.last.finish, b.last.finish);
    ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
    for (size_t i = 0; i < a.logprobs.size(); ++i)
      EXPECT_EQ(a.logprobs[i].logprob, b.logprobs[i].logprob)
          << what << ", " << request.id << ", token " << i;
    ASSERT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size());
    for (size_t i = 0; i < a.prompt_logprobs.size(); ++i)
      EXPECT_EQ(a.prompt_logprobs[i].logprob, b.prompt_logprobs[i].logprob) << what << ", " << request.id;
  }
}

// However requests are put into steps: alone, together, before commits, in chunks, preempted, on cached prefixes, on two ranks.
TEST(ConstrainedBatch, NobodySeesItsNeighbours) {
  const auto engine = test::make_tiny_engine();
  const MixedRequests mixed = mixed_requests(*engine);
  const std::map<std::string, Answer> free = run_all(*engine, mixed.free).answers.all();
  std::map<std::string, Answer> bound;
  for (const Request& request : mixed.constrained) {
    EngineOptions options = test::tiny_engine_options();
    options.enable_prefix_caching = false;
    const auto alone = test::make_tiny_engine(options);
    bound.emplace(request.id, run_all(*alone, {request}).answers.at(request.id));
  }
  const auto compare = [&](const char* what, const EngineOptions& options, int rounds = 1) {
    const auto other = test::make_tiny_engine(options);
    ConstrainedRun run;
    for (int round = 0; round < rounds; ++round)
      run = run_all(*other, mixed.all());
    expect_same(run.answers, free, mixed.free, what);
    expect_same(run.answers, bound, mixed.constrained, what);
    return run;
  };
  EngineOptions options = test::tiny_engine_options();
  EXPECT_GT(compare("together", options).num_forced, 50);
  EXPECT_GT(compare("again, on cached prefixes", options, 2).answers.at("bound5").last.cached_tokens, 0);
  options.steps_ahead = 1;
  EXPECT_GT(compare("a step ahead", options).num_forced, 50);
  options.max_num_batched_tokens = 9;
  compare("in chunks", options);
  options.max_num_batched_tokens = 64;
  options.block_size = 4;
  options.num_blocks = 33;
  options.max_model_len = 120;
  EXPECT_GT(compare("preempted, a step ahead", options).num_preempted, 3);
  options.steps_ahead = 0;
  EXPECT_GT(compare("preempted", options).num_preempted, 3);
  options = test::tiny_engine_options();
  options.tensor_parallel_size = 2;
  const auto ranks = test::make_tiny_engine(options);
  const Answers on_ranks = run_all(*ranks, mixed.all()).answers;
  const std::regex pattern(test::kRecordPattern);
  for (const Request& request : mixed.constrained)
    EXPECT_TRUE(std::regex_match(on_ranks.at(request.id).text, pattern)) << on_ranks.at(request.id).text;
}

TEST(ConstrainedBatch, CancelledOnesLeaveNothing) {
  for (const int32_t steps_ahead : {0, 1}) {
    EngineOptions options = test::tiny_engine_options();
    options.steps_ahead = steps_ahead;
    const auto engine = test::make_tiny_engine(options);
    const auto grammar = grammar_for(*engine, test::digits(1, 80));
    for (int i = 0; i < 4; ++i)
      engine->submit(constrained_request(std::to_string(i), kTinyPrompt, grammar, static_cast<uint64_t>(i)));
    Answers answers;
    for (int i = 0; i < 3; ++i)
      answers.step(*engine);
    engine->cancel("1");
    engine->cancel("3");
    answers.run(*engine);
    for (const auto& [id, answer] : answers.all()) {
      EXPECT_EQ(answer.last.finish, id == "1" || id == "3" ? FinishReason::cancelled : FinishReason::stop);
      EXPECT_TRUE(std::regex_match(answer.text, std::regex("[0-9]*"))) << answer.text;
    }
    EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
  }
}

}  // namespace
}  // namespace minfer
