// Steps with grammars that are launched ahead: the forward pass runs while the step in front does, and their tokens are drawn after it.
#include <map>
#include <random>
#include <regex>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "profiling/record/device_idle.h"
#include "tests/support/engine/grammar_requests.h"
#include "tests/support/engine/tiny_engine.h"
#include "tests/support/last_steps.h"

namespace minfer {
namespace {

using test::Answer;
using test::Answers;
using test::constrained_request;
using test::expect_as_alone;
using test::grammar_for;
using test::kTinyPrompt;

/// Records what is launched and finished: L a step, F a forward pass alone, S its sampling, E the end of a step.
class WatchedBackend final : public cpu::CpuBackend {
 public:
  explicit WatchedBackend(std::string& calls) : CpuBackend(1), calls_(calls) {}
  LaunchedStep launch_step(const StepArgs& step, const ForwardPass& forward) override {
    calls_ += step.later_rows > 0 ? 'F' : 'L';
    return CpuBackend::launch_step(step, forward);
  }
  void launch_sampling(std::span<const SamplingRow> rows) override {
    calls_ += 'S';
    for (const SamplingRow& row : rows)
      EXPECT_EQ(row.pending_row, -1) << "all tokens are known";
    CpuBackend::launch_sampling(rows);
  }
  void finish_step(std::span<SampledToken> out) override {
    calls_ += 'E';
    CpuBackend::finish_step(out);
  }

 private:
  std::string& calls_;
};

EngineOptions options_ahead(int32_t steps_ahead) {
  EngineOptions options = test::tiny_engine_options();
  options.steps_ahead = steps_ahead;
  return options;
}

/// An engine of one step ahead, and the calls to its backend.
struct WatchedEngine {
  std::string calls;
  std::unique_ptr<Engine> engine =
      std::make_unique<Engine>(open_model("synthetic:tiny:f32"), options_ahead(1), LoadProgress(),
                               std::make_unique<WatchedBackend>(calls));

  Request digits(std::string id, int64_t count, uint64_t seed = 1) const {
    return constrained_request(std::move(id), kTinyPrompt, grammar_for(*engine, test::digits(count, count)),
                               seed);
  }
  Answers run(const std::vector<Request>& requests) {
    calls.clear();
    for (const Request& request : requests)
      engine->submit(request);
    Answers answers;
    answers.run(*engine);
    EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
    return answers;
  }
};

TEST(ConstrainedAhead, TheForwardPassIsLaunchedBeforeTheStepInFrontEnds) {
  WatchedEngine watched;
  const Answers answers = watched.run({watched.digits("a", 6)});
  EXPECT_EQ(answers.at("a").text.size(), 6u);
  // The prompt: it is not known yet whether its grammar forces the next token. Then steps ahead; the last is in vain.
  EXPECT_EQ(watched.calls,
            "LE"
            "L"
            "FES"
            "FES"
            "FES"
            "FES"
            "FES"
            "E");
}

TEST(ConstrainedAhead, FreeStepsAreLaunchedWhole) {
  WatchedEngine watched;
  watched.run({test::greedy_request("a", kTinyPrompt, 4), test::greedy_request("b", kTinyPrompt, 4)});
  EXPECT_EQ(watched.calls, "LLELELEE");
}

// It joins the sequences with a grammar, and is not left out of every other step as these are not.
TEST(ConstrainedAhead, AllSequencesAreInEveryStep) {
  WatchedEngine watched;
  const std::vector<Request> requests{watched.digits("a", 8, 1), watched.digits("b", 8, 2),
                                      test::greedy_request("free", kTinyPrompt, 8)};
  const Answers answers = watched.run(requests);
  EXPECT_EQ(watched.calls,
            "L"
            "FES"
            "FES"
            "FES"
            "FES"
            "FES"
            "FES"
            "FES"
            "FESE")
      << "one in vain";
  EXPECT_EQ(answers.at("free").tokens, test::answer_of(*watched.engine, requests[2]).tokens);
}

TEST(ConstrainedAhead, WhatAGrammarForcesIsWaitedForWhereNothingElseRuns) {
  WatchedEngine watched;
  const std::string text = "It is a truth universally acknowledged";
  const auto grammar = grammar_for(*watched.engine, test::literal(text));
  Request request = constrained_request("a", kTinyPrompt, grammar);
  EXPECT_EQ(watched.run({request}).at("a").text, text);
  EXPECT_EQ(watched.calls, "LE");
  Request scored = request;
  scored.sampling.logprobs = 0;
  EXPECT_EQ(watched.run({scored}).at("a").text, text);
  EXPECT_EQ(watched.calls, "LELE") << "and a step for their logprobs";
}

// Beside another sequence the step is launched anyway; the token that it drew for the forced one is dropped.
TEST(ConstrainedAhead, ForcedTokensTakeThePlaceOfWhatIsBeingDrawn) {
  WatchedEngine watched;
  const auto grammar = grammar_for(*watched.engine, test::record_grammar());
  const Request request = constrained_request("a", kTinyPrompt, grammar, 5);
  const Answer alone = test::answer_of(*test::make_tiny_engine(), request);
  const Answers answers = watched.run({request, test::greedy_request("free", kTinyPrompt, 60)});
  EXPECT_EQ(answers.at("a").text, alone.text);
  EXPECT_EQ(answers.at("a").tokens, alone.tokens);
  EXPECT_NE(watched.calls.find("FES"), std::string::npos);
  EXPECT_LT(std::ranges::count(watched.calls, 'E'), 63) << "nobody waits";
}

TEST(ConstrainedAhead, RecordsShowThatSamplingWaited) {
  WatchedEngine watched;
  watched.run({watched.digits("a", 20), watched.digits("b", 20)});
  IdleFinder idle;
  int64_t num_waited = 0;
  for (const StepRecord& record : test::last_steps(watched.engine->recorder(), 100)) {
    const auto& ops = record.stamps.ops;
    for (size_t i = 1; i < ops.size(); ++i) {
      EXPECT_LT(ops[i - 1].op, ops[i].op);
      EXPECT_LE(ops[i - 1].begin_ns, ops[i].begin_ns);
    }
    if (ops.back().launched_ns == 0) continue;
    ++num_waited;
    const BusyOp& front = idle.find(record.stamps)[ops.size() - 2];
    EXPECT_LE(front.busy_ns + front.idle_ns(), ops.back().begin_ns - ops[ops.size() - 2].begin_ns);
    int64_t spans_ns = 0;
    for (const int64_t ns : record.host_ns)
      spans_ns += ns;
    EXPECT_LE(spans_ns + front.busy_ns, record.wall_ns());
  }
  EXPECT_GE(num_waited, 18);
}

/// Requests of many kinds, most of them with one of several grammars.
Request some_request(uint64_t kind, const std::vector<std::shared_ptr<TokenGrammar>>& grammars) {
  std::mt19937 random(static_cast<uint32_t>(kind));
  const auto pick = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  std::vector<TokenId> prompt(static_cast<size_t>(pick(0, 3)) * 4, 300);
  for (int32_t i = pick(1, 20); i > 0; --i)
    prompt.push_back(pick(270, 500));
  Request request = constrained_request("", std::move(prompt), nullptr, kind);
  const auto grammar = static_cast<size_t>(pick(0, static_cast<int32_t>(grammars.size())));
  if (grammar < grammars.size()) request.grammar = grammars[grammar];
  SamplingParams& sampling = request.sampling;
  sampling.max_tokens = pick(1, 60);
  sampling.ignore_eos = pick(0, 2) == 0;
  sampling.min_tokens = std::min(sampling.max_tokens, pick(0, 3));
  sampling.stream_interval = pick(0, 6);
  if (pick(0, 3) == 0) sampling.temperature = 0.0f;
  if (pick(0, 2) == 0) sampling.repetition_penalty = 1.3f;
  if (pick(0, 2) == 0) sampling.frequency_penalty = 0.5f;
  if (pick(0, 2) == 0) sampling.logprobs = 2;
  if (pick(0, 4) == 0) sampling.prompt_logprobs = 1;
  if (pick(0, 2) == 0) sampling.stop = {"7", "e", "\": "};
  if (pick(0, 3) == 0) sampling.stop_token_ids = {test::tiny_byte('3'), test::tiny_byte('m')};
  return request;
}

std::vector<std::shared_ptr<TokenGrammar>> several_grammars(const Engine& engine) {
  return {grammar_for(engine, test::record_grammar()),
          grammar_for(engine, test::digits(1, 50)),
          grammar_for(engine, test::digits(30, 30)),
          grammar_for(engine, test::dead_end_after("abc")),
          grammar_for(engine, test::many_rules(1500)),
          grammar_for(engine, [](GrammarBuilder& b) {
            return b.repeat(b.choice({b.literal("yes, "), b.literal("no, "), b.byte('a', 'd')}), 1, 20);
          })};
}

// Random arrivals and cancellations in a small cache: preemptions, chunks and cached prefixes change no answer.
void soak_constrained(const EngineOptions& options, uint64_t seed) {
  constexpr uint64_t kNumKinds = 40;
  const auto quiet = test::make_tiny_engine();
  const auto grammars_alone = several_grammars(*quiet);
  std::vector<Answer> alone;
  for (uint64_t kind = 0; kind < kNumKinds; ++kind) {
    Request request = some_request(kind, grammars_alone);
    request.id = "alone";
    alone.push_back(test::answer_of(*quiet, request));
  }
  const auto engine = test::make_tiny_engine(options);
  const auto grammars = several_grammars(*engine);
  std::mt19937_64 random(seed);
  std::map<std::string, uint64_t> kinds;
  Answers answers;
  int64_t num_preempted = 0;
  constexpr int kNumRequests = 400;
  for (int next = 0; next < kNumRequests || engine->has_work();) {
    if (next < kNumRequests && random() % 4 == 0) {
      const uint64_t kind = random() % kNumKinds;
      Request request = some_request(kind, grammars);
      request.id = std::to_string(next++);
      kinds[request.id] = kind;
      engine->submit(request);
    }
    if (next > 0 && random() % 40 == 0)
      engine->cancel(std::to_string(next - 1 - static_cast<int>(random() % 3)));
    answers.step(*engine);
    for (const StepRecord& record : test::last_steps(engine->recorder(), 1))
      num_preempted += record.batch.preempted;
  }
  ASSERT_EQ(answers.size(), size_t{kNumRequests});
  for (const auto& [id, kind] : kinds)
    expect_as_alone(answers.at(id), alone[kind], id + " of kind " + std::to_string(kind));
  EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
  EXPECT_GT(num_preempted, 5);
}

EngineOptions crowded_options() {
  EngineOptions options = options_ahead(1);
  options.block_size = 4;
  options.num_blocks = 33;
  options.max_model_len = 128;
  return options;
}

TEST(ConstrainedAhead, AnswersAreThoseOfRequestsAlone) {
  soak_constrained(crowded_options(), 1);
}

TEST(ConstrainedAhead, AnswersAreThoseOfRequestsAloneInChunks) {
  EngineOptions options = crowded_options();
  options.max_num_batched_tokens = 9;
  options.policy = SchedulingPolicy::priority;
  soak_constrained(options, 2);
}

// Drafts make other sequences wait for their tokens: then those with grammars wait too, and the batch stays together.
TEST(ConstrainedAhead, AnswersAreThoseOfRequestsAloneBesideDrafts) {
  EngineOptions options = crowded_options();
  options.speculation.method = SpeculationMethod::ngram;
  options.speculation.adaptive = false;
  soak_constrained(options, 3);
}

// More rows than there is room for logits at a time.
TEST(ConstrainedAhead, APromptIsScoredInSlicesBesideThem) {
  const auto answers_of = [](int32_t steps_ahead) {
    EngineOptions options = options_ahead(steps_ahead);
    options.max_num_seqs = 2;
    const auto engine = test::make_tiny_engine(options);
    engine->submit(constrained_request("a", kTinyPrompt, grammar_for(*engine, test::digits(20, 20))));
    Answers answers;
    for (int i = 0; i < 5; ++i)
      answers.step(*engine);
    Request scored = test::greedy_request("scored", std::vector<TokenId>(100, 300), 5);
    scored.sampling.prompt_logprobs = 1;
    engine->submit(scored);
    return answers.run(*engine);
  };
  const Answers in_turn = answers_of(0);
  const Answers ahead = answers_of(1);
  for (const char* id : {"a", "scored"})
    expect_as_alone(ahead.at(id), in_turn.at(id), id);
  const std::vector<SampledToken>& scores = ahead.at("scored").prompt_logprobs;
  ASSERT_EQ(scores.size(), 99u);
  for (size_t i = 0; i < scores.size(); ++i)
    EXPECT_EQ(scores[i].logprob, in_turn.at("scored").prompt_logprobs[i].logprob) << i;
}

TEST(ConstrainedAhead, RanksDrawTogether) {
  const auto answers_of = [](int32_t steps_ahead) {
    EngineOptions options = options_ahead(steps_ahead);
    options.tensor_parallel_size = 2;
    const auto engine = test::make_tiny_engine(options);
    const auto grammars = several_grammars(*engine);
    for (uint64_t kind = 0; kind < 24; ++kind) {
      Request request = some_request(kind, grammars);
      request.id = std::to_string(kind);
      engine->submit(request);
    }
    return Answers().run(*engine);
  };
  const Answers in_turn = answers_of(0);
  const Answers ahead = answers_of(1);
  for (const auto& [id, answer] : in_turn.all())
    expect_as_alone(ahead.at(id), answer, id);
}

}  // namespace
}  // namespace minfer
