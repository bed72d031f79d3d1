// The engine on CUDA: the features that must not change its tokens (graphs, chunks, preemption, the prefix
// cache, a step ahead), and how requests end.

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/last_steps.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using test::Answers;

/// f32 weights: then activations are f32, and greedy tokens are almost exact.
const std::string kModel = source_path("tests/golden/mistral.gguf");

EngineOptions cuda_options() {
  EngineOptions options;
  options.device = DeviceChoice::cuda;
  options.max_model_len = 256;
  options.max_num_seqs = 32;
  options.num_blocks = 600;
  return options;
}

std::vector<Request> mixed_requests(int32_t count) {
  std::mt19937 random(7);
  const auto pick = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  std::vector<Request> requests;
  std::vector<TokenId> shared(64);
  for (TokenId& token : shared)
    token = pick(3, 250);
  for (int32_t i = 0; i < count; ++i) {
    std::vector<TokenId> prompt(shared.begin(), shared.begin() + pick(0, 3) * 16);
    for (int32_t n = pick(1, 40); n > 0; --n)
      prompt.push_back(pick(3, 250));
    Request request = test::greedy_request(std::to_string(i), std::move(prompt), pick(1, 40));
    if (i % 3 == 1) {
      request.sampling.temperature = 0.8f;
      request.sampling.seed = static_cast<uint64_t>(i);
      request.sampling.top_k = 20;
    }
    if (i % 5 == 2) request.sampling.repetition_penalty = 1.2f;
    if (i % 7 == 3) request.sampling.logprobs = 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

Answers run(const EngineOptions& options, const std::vector<Request>& requests,
            int64_t* num_preempted = nullptr) {
  Engine engine(open_model(kModel), options);
  for (const Request& request : requests)
    engine.submit(request);
  Answers answers;
  while (engine.has_work()) {
    answers.step(engine);
    if (num_preempted == nullptr) continue;
    for (const StepRecord& record : test::last_steps(engine.recorder(), 1))
      *num_preempted += record.batch.preempted;
  }
  EXPECT_EQ(engine.scheduler().blocks().num_live(), 0);
  return answers;
}

/// Tokens may differ only where rounding decides, so almost never in f32.
void expect_same(const Answers& answers, const Answers& expected, const char* what) {
  ASSERT_EQ(answers.size(), expected.size()) << what;
  size_t num_equal = 0;
  for (const auto& [id, answer] : expected.all())
    num_equal += answers.at(id).tokens == answer.tokens;
  EXPECT_GE(num_equal + 1, expected.size()) << what;
}

class CudaEngine : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaEngine, ServesTheSameTokensHoweverItsStepsAreMade) {
  const std::vector<Request> requests = mixed_requests(60);
  EngineOptions plain = cuda_options();
  plain.device = DeviceChoice::cpu;
  const Answers expected = run(plain, requests);

  expect_same(run(cuda_options(), requests), expected, "CUDA against CPU");
  EngineOptions options = cuda_options();
  options.cuda_graphs = false;
  expect_same(run(options, requests), expected, "without graphs");
  options = cuda_options();
  options.steps_ahead = 0;
  expect_same(run(options, requests), expected, "without a step ahead");
  for (const int32_t budget : {1, 7, 33}) {
    options = cuda_options();
    options.max_num_batched_tokens = budget;
    expect_same(run(options, requests), expected, "chunks");
  }
  options = cuda_options();
  options.enable_prefix_caching = false;
  expect_same(run(options, requests), expected, "without the prefix cache");
  options = cuda_options();
  options.max_model_len = 128;
  options.block_size = 4;
  options.num_blocks = 40;
  int64_t num_preempted = 0;
  expect_same(run(options, requests, &num_preempted), expected, "preempted");
  EXPECT_GT(num_preempted, 5);
}

/// Counts and biases stay on the device while sequences come, go and come back.
TEST_F(CudaEngine, PenaltiesAndBiasesFollowTheirSequences) {
  std::vector<Request> requests = mixed_requests(50);
  for (size_t i = 0; i < requests.size(); ++i) {
    SamplingParams& sampling = requests[i].sampling;
    if (i % 2 == 0) sampling.repetition_penalty = 1.3f;
    if (i % 3 == 0) sampling.presence_penalty = 0.5f;
    if (i % 5 < 3) sampling.frequency_penalty = 0.4f;
    if (i % 4 == 1) {
      sampling.min_tokens = std::min(3, sampling.max_tokens);
      for (TokenId token = 20; token < 60; ++token)
        sampling.stop_token_ids.push_back(token);
      sampling.logit_bias = {{5, 2.0f}, {30, 3.0f}, {77, -4.0f}};
    }
  }
  EngineOptions plain = cuda_options();
  plain.device = DeviceChoice::cpu;
  const Answers expected = run(plain, requests);
  expect_same(run(cuda_options(), requests), expected, "CUDA against CPU");
  EngineOptions options = cuda_options();
  options.max_num_seqs = 5;
  expect_same(run(options, requests), expected, "few slots");
  options = cuda_options();
  options.cuda_graphs = false;
  options.steps_ahead = 0;
  expect_same(run(options, requests), expected, "without graphs, without a step ahead");
  options = cuda_options();
  options.max_model_len = 128;
  options.block_size = 4;
  options.num_blocks = 40;
  int64_t num_preempted = 0;
  expect_same(run(options, requests, &num_preempted), expected, "preempted");
  EXPECT_GT(num_preempted, 5);
}

TEST_F(CudaEngine, ScoresPromptsAsTheCpuDoes) {
  std::vector<Request> requests = mixed_requests(30);
  for (size_t i = 0; i < requests.size(); i += 2)
    requests[i].sampling.prompt_logprobs = static_cast<int32_t>(i) % 4;
  EngineOptions plain = cuda_options();
  plain.device = DeviceChoice::cpu;
  const Answers expected = run(plain, requests);
  const Answers answers = run(cuda_options(), requests);
  for (const Request& request : requests) {
    const std::vector<SampledToken>& scores = answers.at(request.id).prompt_logprobs;
    const std::vector<SampledToken>& on_cpu = expected.at(request.id).prompt_logprobs;
    ASSERT_EQ(scores.size(), on_cpu.size()) << request.id;
    if (request.sampling.prompt_logprobs >= 0) {
      ASSERT_EQ(scores.size(), request.prompt.size() - 1) << request.id;
    }
    for (size_t i = 0; i < scores.size(); ++i) {
      EXPECT_EQ(scores[i].token, request.prompt[i + 1]) << request.id << " at " << i;
      EXPECT_NEAR(scores[i].logprob, on_cpu[i].logprob, 1e-3) << request.id << " at " << i;
      EXPECT_EQ(scores[i].top.size(), on_cpu[i].top.size()) << request.id << " at " << i;
    }
  }
}

TEST_F(CudaEngine, GraphsEqualEagerStepsForEveryBatchSize) {
  constexpr int32_t kMost = 40;
  for (int32_t batch = 1; batch <= kMost; ++batch) {
    std::vector<Request> requests;
    for (int32_t i = 0; i < batch; ++i) {
      requests.push_back(test::greedy_request(std::to_string(i), {3 + i, 40 + i, 7}, 6));
      requests.back().sampling.logprobs = 0;
    }
    EngineOptions options = cuda_options();
    options.max_num_seqs = kMost;
    const Answers graphs = run(options, requests);
    options.cuda_graphs = false;
    const Answers eager = run(options, requests);
    for (const auto& [id, answer] : eager.all()) {
      EXPECT_EQ(graphs.at(id).tokens, answer.tokens) << "batch of " << batch << ", sequence " << id;
      ASSERT_EQ(graphs.at(id).logprobs.size(), answer.logprobs.size());
      for (size_t i = 0; i < answer.logprobs.size(); ++i)
        EXPECT_NEAR(graphs.at(id).logprobs[i].logprob, answer.logprobs[i].logprob, 1e-4);
    }
  }
}

/// A grid has at most 65,535 blocks in y and z.
TEST_F(CudaEngine, TakesAPromptOf70000TokensInOneStep) {
  test::ModelParts parts = test::tiny_model();
  parts.keys["llama.context_length"] = uint32_t{80000};
  const std::vector<std::byte> file = parts.build();
  std::mt19937 random(11);
  std::vector<TokenId> prompt(70000);
  for (TokenId& token : prompt)
    token = std::uniform_int_distribution<int32_t>(3, 20)(random);
  Request request = test::greedy_request("a", prompt, 4);
  request.sampling.logprobs = 0;
  const auto answer_with = [&](int32_t budget) {
    EngineOptions options = cuda_options();
    options.max_model_len = 0;
    options.max_num_batched_tokens = budget;
    options.num_blocks = 5000;
    Engine engine(open_model_in_memory(file, "tiny"), options);
    return test::answer_of(engine, request);
  };
  const test::Answer whole = answer_with(131072);
  const test::Answer chunks = answer_with(8192);
  EXPECT_EQ(whole.tokens, chunks.tokens);
  ASSERT_EQ(whole.logprobs.size(), chunks.logprobs.size());
  for (size_t i = 0; i < whole.logprobs.size(); ++i)
    EXPECT_NEAR(whole.logprobs[i].logprob, chunks.logprobs[i].logprob, 1e-3);
}

TEST_F(CudaEngine, RepeatsItself) {
  const std::vector<Request> requests = mixed_requests(30);
  const Answers first = run(cuda_options(), requests);
  const Answers second = run(cuda_options(), requests);
  for (const auto& [id, answer] : first.all())
    EXPECT_EQ(second.at(id).tokens, answer.tokens) << id;
}

TEST_F(CudaEngine, StopsAStepLateWithoutShowingIt) {
  Engine engine(open_model(kModel), cuda_options());
  Request request = test::greedy_request("a", {5, 6, 7}, 20);
  const std::vector<TokenId> tokens = test::answer_of(engine, request).tokens;
  request.sampling.stop_token_ids = {tokens[9]};
  const auto first = std::ranges::find(tokens, tokens[9]) - tokens.begin();
  const test::Answer answer = test::answer_of(engine, request);
  EXPECT_EQ(answer.last.finish, FinishReason::stop);
  EXPECT_EQ(std::ssize(answer.tokens), first + 1);
  EXPECT_EQ(engine.scheduler().blocks().num_live(), 0);
}

TEST_F(CudaEngine, CancelledRequestsLeaveNothingBehind) {
  Engine engine(open_model(kModel), cuda_options());
  for (const Request& request : mixed_requests(40))
    engine.submit(request);
  Answers answers;
  for (int i = 0; i < 5; ++i)
    answers.step(engine);
  for (int i = 0; i < 40; i += 2)
    engine.cancel(std::to_string(i));
  answers.run(engine);
  EXPECT_EQ(answers.size(), 40u);
  EXPECT_EQ(engine.scheduler().blocks().num_live(), 0);
}

TEST_F(CudaEngine, StampsAddUpAndStandInOrder) {
  Engine engine(open_model(kModel), cuda_options());
  for (const Request& request : mixed_requests(20))
    engine.submit(request);
  Answers().run(engine);
  int64_t last_end_ns = 0;
  size_t num_graphs = 0;
  for (const StepRecord& record : test::last_steps(engine.recorder(), 1000)) {
    const auto& ops = record.stamps.ops;
    ASSERT_GT(ops.size(), 10u);
    num_graphs += record.batch.graph_batch > 0;
    for (size_t i = 1; i < ops.size(); ++i) {
      EXPECT_LT(ops[i - 1].op, ops[i].op);
      EXPECT_LE(ops[i - 1].begin_ns, ops[i].begin_ns);
    }
    EXPECT_LE(ops.back().begin_ns, record.stamps.end_ns);
    EXPECT_GE(ops.front().begin_ns, last_end_ns) << "steps overlap on the device";
    EXPECT_GE(record.start_ns, last_end_ns);
    last_end_ns = record.stamps.end_ns;
  }
  EXPECT_GT(num_graphs, 5u);
}

TEST_F(CudaEngine, MemoryThatIsNotThereIsRefusedByName) {
  EngineOptions options = cuda_options();
  options.num_blocks = 0;
  options.gpu_memory_utilization = 0.001;
  try {
    Engine engine(open_model(kModel), options);
    FAIL() << "a thousandth of the memory is enough?";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("gpu-memory-utilization"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace minfer
