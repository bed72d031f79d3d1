// Requests with grammars on CUDA, a step ahead and in graphs, beside requests without.
#include <chrono>
#include <regex>

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "profiling/record/device_idle.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/grammar_requests.h"
#include "tests/support/engine/tiny_engine.h"
#include "tests/support/last_steps.h"

namespace minfer {
namespace {

class CudaGrammar : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

/// Even ones have a grammar. Some of these want logprobs, also of forced tokens.
std::vector<Request> alternating_requests(const Engine& engine, int32_t count) {
  const auto grammar = test::grammar_for(engine, test::record_grammar());
  std::vector<Request> requests;
  for (int32_t i = 0; i < count; ++i) {
    std::vector<TokenId> prompt = test::kTinyPrompt;
    prompt.back() = 330 + i;
    Request request = test::greedy_request(std::to_string(i), prompt, 40);
    if (i % 2 == 0) {
      request = test::constrained_request(std::to_string(i), prompt, grammar, static_cast<uint64_t>(i));
      if (i % 3 == 0) request.sampling.temperature = 0.0f;
      if (i % 4 == 0) request.sampling.logprobs = 1;
      if (i % 8 == 2) request.sampling.repetition_penalty = 1.2f;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_F(CudaGrammar, TextsAreThoseOfTheGrammarAndFreeOnesStay) {
  const std::regex pattern(test::kRecordPattern);
  for (const int32_t steps_ahead : {0, 1}) {
    for (const bool graphs : {true, false}) {
      EngineOptions options = test::tiny_engine_options();
      options.device = DeviceChoice::cuda;
      options.steps_ahead = steps_ahead;
      options.cuda_graphs = graphs;
      const auto engine = test::make_tiny_engine(options);
      const std::vector<Request> requests = alternating_requests(*engine, 16);
      for (const Request& request : requests)
        engine->submit(request);
      const test::Answers answers = test::Answers().run(*engine);
      for (const Request& request : requests) {
        const test::Answer& answer = answers.at(request.id);
        if (request.grammar) {
          EXPECT_TRUE(std::regex_match(answer.text, pattern)) << request.id << ": " << answer.text;
          EXPECT_EQ(answer.last.finish, FinishReason::stop);
          EXPECT_EQ(answer.logprobs.size(), request.sampling.logprobs < 0 ? 0 : answer.tokens.size());
        } else {
          EXPECT_EQ(answer.tokens.size(), 40u) << request.id;
        }
      }
      EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
    }
  }
}

EngineOptions f32_options(int32_t steps_ahead, bool graphs = true) {
  EngineOptions options = test::tiny_engine_options();
  options.device = DeviceChoice::cuda;
  options.steps_ahead = steps_ahead;
  options.cuda_graphs = graphs;
  return options;
}

/// More kinds of requests: stop strings, all kinds of ends, several grammars, a scored prompt.
std::vector<Request> many_requests(const Engine& engine) {
  std::vector<Request> requests = alternating_requests(engine, 24);
  const auto digits = test::grammar_for(engine, test::digits(1, 60));
  const auto fixed = test::grammar_for(engine, test::digits(35, 35));
  const auto dead_end = test::grammar_for(engine, test::dead_end_after("abc"));
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    if (request.grammar && i % 3 == 1) request.grammar = digits;
    if (request.grammar && i % 3 == 2) request.grammar = fixed;
    if (i % 6 == 4) request.sampling.stop = {"7", "e"};
    if (i % 6 == 2) request.sampling.max_tokens = static_cast<int32_t>(5 + i);
    if (i % 5 == 3) request.sampling.frequency_penalty = 0.5f;
  }
  requests[4].grammar = dead_end;
  requests[7].sampling.prompt_logprobs = 1;
  return requests;
}

test::Answers answers_of(const EngineOptions& options, int64_t* num_preempted = nullptr) {
  const auto engine = test::make_tiny_engine(options);
  for (const Request& request : many_requests(*engine))
    engine->submit(request);
  test::Answers answers;
  while (engine->has_work()) {
    answers.step(*engine);
    if (num_preempted == nullptr) continue;
    for (const StepRecord& record : test::last_steps(engine->recorder(), 1))
      *num_preempted += record.batch.preempted;
  }
  EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
  return answers;
}

/// Expects the same answers, except where rounding decides: in f32 in hardly any answer.
void expect_same_answers(const test::Answers& answers, const test::Answers& expected, const char* what) {
  ASSERT_EQ(answers.size(), expected.size()) << what;
  size_t num_equal = 0;
  for (const auto& [id, answer] : expected.all())
    num_equal += answers.at(id).tokens == answer.tokens && answers.at(id).last.finish == answer.last.finish;
  EXPECT_GE(num_equal + 1, expected.size()) << what;
}

TEST_F(CudaGrammar, TokensAreThoseOfTheCpuHoweverStepsAreLaunched) {
  EngineOptions on_cpu = test::tiny_engine_options();
  on_cpu.device = DeviceChoice::cpu;
  const test::Answers expected = answers_of(on_cpu);
  expect_same_answers(answers_of(f32_options(0)), expected, "in turn");
  expect_same_answers(answers_of(f32_options(1)), expected, "ahead");
  expect_same_answers(answers_of(f32_options(1, false)), expected, "ahead, without graphs");
  EngineOptions options = f32_options(1);
  options.max_num_batched_tokens = 9;
  expect_same_answers(answers_of(options), expected, "ahead, in chunks");
  options = f32_options(1);
  options.max_num_seqs = 2;
  expect_same_answers(answers_of(options), expected, "ahead, few slots");
  options = f32_options(1);
  options.block_size = 4;
  options.num_blocks = 36;
  int64_t num_preempted = 0;
  expect_same_answers(answers_of(options, &num_preempted), expected, "ahead, preempted");
  EXPECT_GT(num_preempted, 3);
}

TEST_F(CudaGrammar, AStepAheadRepeatsItself) {
  const test::Answers first = answers_of(f32_options(1));
  const test::Answers second = answers_of(f32_options(1));
  for (const auto& [id, answer] : first.all())
    EXPECT_EQ(second.at(id).tokens, answer.tokens) << id;
}

TEST_F(CudaGrammar, CancelledOnesLeaveNothing) {
  const auto engine = test::make_tiny_engine(f32_options(1));
  const std::vector<Request> requests = many_requests(*engine);
  for (const Request& request : requests)
    engine->submit(request);
  test::Answers answers;
  for (int i = 0; i < 6; ++i)
    answers.step(*engine);
  for (size_t i = 0; i < requests.size(); i += 2)
    engine->cancel(requests[i].id);
  answers.run(*engine);
  EXPECT_EQ(answers.size(), requests.size());
  EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
}

/// The index of the step's sampling stamp, if its tokens were drawn after a forward pass that had been launched before; else 0.
size_t later_sample(const Engine& engine, const StepRecord& record) {
  const auto& ops = record.stamps.ops;
  for (size_t i = 1; i < ops.size(); ++i) {
    if (engine.ops()[static_cast<size_t>(ops[i].op)].kind == OpKind::sample)
      return record.batch.graph_batch > 0 && ops[i].launched_ns > 0 ? i : 0;
  }
  return 0;
}

TEST_F(CudaGrammar, ForwardPassesAreGraphsAndStampsStandInOrder) {
  const auto engine = test::make_tiny_engine(f32_options(1));
  const auto grammar = test::grammar_for(*engine, test::digits(60, 60));
  for (int i = 0; i < 6; ++i)
    engine->submit(
        test::constrained_request(std::to_string(i), test::kTinyPrompt, grammar, static_cast<uint64_t>(i)));
  test::Answers().run(*engine);
  int64_t last_end_ns = 0, num_later = 0;
  for (const StepRecord& record : test::last_steps(engine->recorder(), 1000)) {
    const auto& ops = record.stamps.ops;
    for (size_t i = 1; i < ops.size(); ++i) {
      EXPECT_LT(ops[i - 1].op, ops[i].op);
      EXPECT_LE(ops[i - 1].begin_ns, ops[i].begin_ns);
    }
    EXPECT_LE(ops.back().begin_ns, record.stamps.end_ns);
    EXPECT_GE(ops.front().begin_ns, last_end_ns) << "steps overlap on the device";
    last_end_ns = record.stamps.end_ns;
    int64_t num_launches = 0;
    for (const StepStamps::Stamp& stamp : ops)
      num_launches += stamp.num_launches;
    EXPECT_EQ(num_launches, std::ssize(record.stamps.launches));
    const size_t sample = later_sample(*engine, record);
    if (sample == 0) continue;
    ++num_later;
    EXPECT_GT(ops[sample - 1].end_ns, 0) << "where the forward pass ended";
    EXPECT_LE(ops[sample - 1].end_ns, ops[sample].begin_ns);
  }
  EXPECT_GT(num_later, 50);
}

/// A backend whose host brings the rows of steps late.
class LateBackend final : public cuda::CudaBackend {
 public:
  static constexpr int64_t kLateNs = 300'000;

  LateBackend() : CudaBackend({.activation_dtype = DType::f32}) {}
  void launch_sampling(std::span<const SamplingRow> rows) override {
    while (cudaStreamQuery(stream()) == cudaErrorNotReady) {
    }
    const int64_t end_ns = now_ns() + kLateNs;
    while (now_ns() < end_ns) {
    }
    CudaBackend::launch_sampling(rows);
  }
};

TEST_F(CudaGrammar, RowsThatComeLateAreTheHostsIdleTime) {
  const EngineOptions options = f32_options(1);
  Engine engine(open_model("synthetic:tiny:f32"), options, {}, std::make_unique<LateBackend>());
  const auto grammar = test::grammar_for(engine, test::digits(60, 60));
  engine.submit(test::constrained_request("a", test::kTinyPrompt, grammar));
  test::Answers().run(engine);
  IdleFinder idle;
  int64_t num_later = 0, num_seen = 0;
  for (const StepRecord& record : test::last_steps(engine.recorder(), 1000)) {
    const std::span<const BusyOp> ops = idle.find(record.stamps);
    const size_t sample = later_sample(engine, record);
    if (sample == 0) continue;
    ++num_later;
    num_seen += ops[sample - 1].idle_host_ns >= LateBackend::kLateNs * 9 / 10;
  }
  EXPECT_GT(num_later, 50);
  EXPECT_GE(num_seen, num_later * 9 / 10);
}

}  // namespace
}  // namespace minfer
