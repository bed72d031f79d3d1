#pragma once

#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/engine/engine_run.h"

namespace minfer::test {

/// Room for 8 sequences of 256 tokens, on one thread.
inline EngineOptions drafted_run_options() {
  EngineOptions options;
  options.max_model_len = 256;
  options.max_num_seqs = 8;
  options.num_blocks = 600;
  options.block_size = 4;
  options.threads = 1;
  return options;
}

/// The options with as many drafts by prompt lookup as possible.
inline EngineOptions with_ngrams(EngineOptions options, int32_t num_tokens = 5) {
  options.speculation.method = SpeculationMethod::ngram;
  options.speculation.num_tokens = num_tokens;
  options.speculation.adaptive = false;
  return options;
}

/// The answers, and the counts of the steps that gave them.
struct DraftedRun {
  Answers answers;
  int64_t num_steps = 0;
  int64_t num_preempted = 0;
  SpeculationCounts drafted;
};

inline DraftedRun run_drafted(Engine& engine, const std::vector<Request>& requests) {
  DraftedRun run;
  const int64_t first_step = engine.next_step();
  for (const Request& request : requests)
    engine.submit(request);
  while (engine.has_work()) {
    run.answers.step(engine);
    const auto running = engine.scheduler().running();
    engine.scheduler().blocks().check(std::vector<const Sequence*>(running.begin(), running.end()));
  }
  run.num_steps = engine.next_step() - first_step;
  for (const StepRecord& record : engine.recorder().after(first_step - 1)) {
    run.num_preempted += record.batch.preempted;
    EXPECT_EQ(std::reduce(record.batch.accepted_at.begin(), record.batch.accepted_at.end()),
              record.batch.accepted_tokens);
    run.drafted += {record.batch.drafts, record.batch.draft_tokens, record.batch.accepted_tokens};
  }
  EXPECT_EQ(engine.scheduler().blocks().num_live(), 0);
  return run;
}

inline bool same_logprobs(const std::vector<SampledToken>& a, const std::vector<SampledToken>& b) {
  return std::ranges::equal(a, b, [](const SampledToken& x, const SampledToken& y) {
    return x.token == y.token && x.logprob == y.logprob &&
           std::ranges::equal(x.top, y.top, [](const TokenLogprob& s, const TokenLogprob& t) {
             return s.token == t.token && s.logprob == t.logprob;
           });
  });
}

/// Expects that each request was answered alike, bit for bit.
inline void expect_same_answers(const std::vector<Request>& requests, const Answers& found,
                                const Answers& expected) {
  for (const Request& request : requests) {
    const Answer& a = found.at(request.id);
    const Answer& b = expected.at(request.id);
    EXPECT_EQ(a.tokens, b.tokens) << request.id;
    EXPECT_EQ(a.text, b.text) << request.id;
    EXPECT_EQ(a.last.finish, b.last.finish) << request.id;
    EXPECT_EQ(a.last.finish_detail, b.last.finish_detail) << request.id;
    EXPECT_EQ(a.last.output_tokens, b.last.output_tokens) << request.id;
    EXPECT_TRUE(same_logprobs(a.logprobs, b.logprobs)) << request.id;
    EXPECT_TRUE(same_logprobs(a.prompt_logprobs, b.prompt_logprobs)) << request.id;
  }
}

/// Requests for `engine`'s model that differ in every setting that affects how tokens are drawn and when they end.
inline std::vector<Request> varied_requests(const Engine& engine, size_t count, uint64_t first_seed = 0) {
  const std::vector<std::string> prompts{
      "Once upon a time there was a cat. The cat saw a dog. The cat saw a dog. The cat",
      "Tom has a red ball. Tom has a red ball. Tom has a red ball. Tom has",
      "The little girl said: no no no no no", "One day"};
  std::vector<Request> requests;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t seed = first_seed + i;
    Request request;
    request.id = "request-" + std::to_string(seed);
    request.prompt = engine.tokenizer().encode(prompts[seed % prompts.size()]);
    SamplingParams& sampling = request.sampling;
    sampling.seed = seed * 7919 + 1;
    sampling.temperature = std::vector<float>{0.0f, 0.4f, 0.8f, 1.3f, 0.1f}[seed % 5];
    sampling.top_k = seed % 3 == 0 ? 20 : 0;
    sampling.top_p = seed % 4 == 1 ? 0.8f : 1.0f;
    sampling.min_p = seed % 6 == 2 ? 0.05f : 0.0f;
    sampling.max_tokens = static_cast<int32_t>(1 + seed * 13 % 90);
    sampling.ignore_eos = seed % 7 == 0;
    sampling.stream_interval = 1 + static_cast<int32_t>(seed % 3);
    if (seed % 5 == 0) sampling.logit_bias = {{request.prompt.back(), 4.0f}, {request.prompt.front(), -3.0f}};
    if (seed % 4 == 2) sampling.min_tokens = sampling.max_tokens / 2;
    if (seed % 3 == 1) sampling.stop = {" the", "a b", "no no no"};
    if (seed % 6 == 4) sampling.stop_token_ids = {request.prompt[request.prompt.size() / 2]};
    if (seed % 4 == 3) sampling.logprobs = 3;
    if (seed % 8 == 5) sampling.prompt_logprobs = 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

/// Texts of few words, some of them drawn at random: some drafts are right and many wrong.
inline std::vector<Request> requests_of_few_words(size_t count, uint32_t first_seed = 0) {
  std::vector<Request> requests;
  for (uint32_t seed = first_seed; requests.size() < count; ++seed) {
    std::mt19937 random(seed);
    std::vector<TokenId> words(3 + random() % 9), prompt;
    for (TokenId& word : words)
      word = static_cast<TokenId>(3 + random() % 240);
    const size_t length = 8 + random() % 50;
    while (prompt.size() < length)
      prompt.push_back(random() % 8 == 0 ? static_cast<TokenId>(3 + random() % 240)
                                         : words[prompt.size() % words.size()]);
    Request request = greedy_request(std::to_string(seed), prompt, static_cast<int32_t>(20 + random() % 60));
    request.sampling.temperature = std::vector<float>{0.0f, 0.0f, 0.3f, 1.0f}[seed % 4];
    request.sampling.seed = seed + 1;
    // With few words there are repetitions.
    for (size_t i = 0; i < 3; ++i)
      request.sampling.logit_bias.push_back({words[i], 60.0f});
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace minfer::test
