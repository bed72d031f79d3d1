#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/evaluator.h"
#include "tests/support/engine/engine_run.h"

/// Runs for tests of whole models on a GPU: one sequence's logits, requests served together, and the relation between the two.
namespace minfer::test {

/// Room for 8 sequences of 256 tokens on a GPU; prompts in pieces, beside decoding.
inline EngineOptions served_options(DType dtype) {
  EngineOptions options;
  options.device = DeviceChoice::cuda;
  options.dtype = dtype;
  options.max_model_len = 256;
  options.max_num_seqs = 8;
  options.num_blocks = 256;
  options.max_num_batched_tokens = 64;
  return options;
}

/// Logits of every token, from a model loaded for this call: [tokens, vocab_size]. `chunk` as in Evaluator::run().
inline std::vector<float> logits_of(const std::string& model, std::span<const TokenId> tokens,
                                    const EngineOptions& options, int32_t chunk = 0) {
  const std::unique_ptr<ModelSource> source = open_model(model);
  Evaluator evaluator(*source, options);
  std::vector<float> logits;
  evaluator.run(tokens, chunk, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

/// Tokens in no particular order, the same each time.
struct TokenPattern {
  TokenId first;  ///< the lowest one
  TokenId end;    ///< behind the highest one

  std::vector<TokenId> tokens(int32_t seed, int32_t count) const {
    std::vector<TokenId> tokens;
    for (int32_t i = 0; i < count; ++i)
      tokens.push_back(first + (seed + 11 * i + 7 * i * i) % (end - first));
    return tokens;
  }

  /// A greedy request of these numbers of tokens, with their logprobs; its id is `i`.
  Request request(int32_t i, int32_t prompt, int32_t output) const {
    Request request = greedy_request(std::to_string(i), tokens(3 * i, prompt), output);
    request.sampling.logprobs = 0;
    return request;
  }

  /// Prompts of every length that begin and end at different steps: up to `count` decode at once, beside prompts and padding.
  std::vector<Request> staggered_requests(int32_t count) const {
    std::vector<Request> requests;
    for (int32_t i = 0; i < count; ++i)
      requests.push_back(request(i, 5 + 13 * i, 60 + 15 * i));
    return requests;
  }
};

struct ServedModel {
  Answers answers;
  int64_t num_graphs = 0;  ///< replayed steps
};

/// Serves all of them at once, with a new engine.
inline ServedModel serve(const std::string& model, const EngineOptions& options,
                         const std::vector<Request>& requests) {
  Engine engine(open_model(model), options);
  for (const Request& request : requests)
    engine.submit(request);
  ServedModel served;
  served.answers.run(engine);
  for (const StepRecord& record : engine.recorder().after(-1))
    served.num_graphs += record.batch.graph_batch > 0;
  return served;
}

/// Expects the same tokens, and logprobs within 1e-4.
inline void expect_close_answers(const Answers& found, const Answers& expected, const std::string& what) {
  for (const auto& [id, answer] : expected.all()) {
    EXPECT_EQ(found.at(id).tokens, answer.tokens) << what << ", request " << id;
    ASSERT_EQ(found.at(id).logprobs.size(), answer.logprobs.size());
    for (size_t i = 0; i < answer.logprobs.size(); ++i)
      EXPECT_NEAR(found.at(id).logprobs[i].logprob, answer.logprobs[i].logprob, 1e-4)
          << what << ", request " << id << " at " << i;
  }
}

/// Expects the same for staggered requests with and without graphs, with and without a step ahead.
inline void expect_graphs_as_eager(const std::string& model, EngineOptions options,
                                   const std::vector<Request>& requests) {
  for (const int32_t steps_ahead : {0, 1}) {
    options.steps_ahead = steps_ahead;
    options.cuda_graphs = true;
    const ServedModel graphs = serve(model, options, requests);
    options.cuda_graphs = false;
    const ServedModel eager = serve(model, options, requests);
    EXPECT_GT(graphs.num_graphs, 20) << model;
    EXPECT_EQ(eager.num_graphs, 0) << model;
    expect_close_answers(graphs.answers, eager.answers, fmt::format("{}, {} ahead", model, steps_ahead));
  }
}

/// Root mean square difference between the logprobs of generated tokens and the logprobs from a prompt of the same tokens.
inline double logprobs_from_prompts(const std::string& model, const EngineOptions& options,
                                    const std::vector<Request>& requests, const Answers& answers) {
  double squares = 0.0, count = 0.0;
  for (const Request& request : requests) {
    const Answer& answer = answers.at(request.id);
    std::vector<TokenId> tokens = request.prompt;
    const size_t prompt = tokens.size();
    tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
    const std::vector<float> logits = logits_of(model, tokens, options);
    const size_t vocabulary = logits.size() / tokens.size();
    for (size_t k = 0; k < answer.tokens.size(); ++k) {
      const auto row = std::span(logits).subspan((prompt + k - 1) * vocabulary, vocabulary);
      const double largest = *std::ranges::max_element(row);
      double sum = 0.0;
      for (const float logit : row)
        sum += std::exp(logit - largest);
      const double logprob = row[static_cast<size_t>(answer.tokens[k])] - largest - std::log(sum);
      const double difference = answer.logprobs[k].logprob - logprob;
      squares += difference * difference;
      count += 1.0;
    }
  }
  return std::sqrt(squares / count);
}

}  // namespace minfer::test
