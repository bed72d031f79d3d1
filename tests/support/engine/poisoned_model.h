#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/engine/engine_run.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/random_data.h"

/// Requests whose logits leave no token to draw, beside others: on any device, with steps in any order.
namespace minfer::test {

/// A tiny model with a poisoned weight: the embedding of kPoison is NaN, and so are all logits from that token on.
constexpr TokenId kPoison = 280;

inline std::vector<std::byte> poisoned_model() {
  constexpr int64_t kHidden = 32;
  ModelParts parts = tiny_model();
  ModelParts::TensorPart& embedding = parts.tensors.at("token_embd.weight");
  std::vector<float> values = normal_values(kHidden * static_cast<int64_t>(embedding.dims[1]), 21, 0.2f);
  std::fill_n(values.begin() + kPoison * kHidden, kHidden, std::numeric_limits<float>::quiet_NaN());
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  embedding.data.assign(bytes.begin(), bytes.end());
  return parts.build();
}

/// Requests of several kinds that never meet the poison.
inline std::vector<Request> sound_requests() {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) {
    Request request = greedy_request("sound" + std::to_string(i), {3 + i, 40 + 7 * i, 9, 100 + i}, 8 + i);
    request.sampling.logit_bias = {{kPoison, -100.0f}};
    request.sampling.logprobs = i % 3;
    if (i % 2 == 1) {
      request.sampling.temperature = 0.9f;
      request.sampling.seed = static_cast<uint64_t>(i);
    }
    if (i % 3 == 2) request.sampling.repetition_penalty = 1.3f;
    requests.push_back(std::move(request));
  }
  return requests;
}

/// A request, and the tokens that it gets before it fails.
struct DoomedRequest {
  Request request;
  int32_t num_tokens = 0;
};

inline std::vector<DoomedRequest> doomed_requests(int32_t vocab_size) {
  std::vector<DoomedRequest> doomed;
  doomed.push_back({greedy_request("poison at once", {kPoison, 4, 5}, 5)});
  doomed.push_back({greedy_request("poison in the prompt", {4, 5, kPoison, 6, 7}, 5)});
  Request sampled = greedy_request("poison, sampled with logprobs", {4, kPoison}, 5);
  sampled.sampling.temperature = 1.0f;
  sampled.sampling.logprobs = 3;
  sampled.sampling.frequency_penalty = 0.5f;
  doomed.push_back({std::move(sampled)});
  Request scored = greedy_request("poison among scored tokens", {4, 5, kPoison, 6, 7, 8}, 5);
  scored.sampling.prompt_logprobs = 1;
  doomed.push_back({std::move(scored)});
  Request drawn = greedy_request("poison drawn", {4, 5, 6}, 5);
  drawn.sampling.logit_bias = {{kPoison, 100.0f}};
  doomed.push_back({std::move(drawn), 1});
  Request forbidden = greedy_request("every token forbidden", {4, 5, 6}, 5);
  forbidden.sampling.min_tokens = 3;
  forbidden.sampling.stop_token_ids.resize(static_cast<size_t>(vocab_size));
  std::iota(forbidden.sampling.stop_token_ids.begin(), forbidden.sampling.stop_token_ids.end(), 0);
  doomed.push_back({std::move(forbidden)});
  return doomed;
}

/// Runs all requests together. Expects that each doomed one ends with its own error, and that the sound ones get the same
/// answers as alone.
inline void expect_only_the_doomed_fail(const EngineOptions& options) {
  const std::vector<std::byte> file = poisoned_model();
  const auto make_engine = [&] {
    return std::make_unique<Engine>(open_model_in_memory(file, "poisoned"), options);
  };
  const std::unique_ptr<Engine> undisturbed = make_engine();
  for (const Request& request : sound_requests())
    undisturbed->submit(request);
  const Answers expected = Answers().run(*undisturbed);

  const std::unique_ptr<Engine> engine = make_engine();
  for (int round = 0; round < 2; ++round) {  // the first round leaves nothing behind for the second
    const std::vector<DoomedRequest> doomed = doomed_requests(engine->config().vocab_size);
    for (const Request& request : sound_requests())
      engine->submit(request);
    for (const DoomedRequest& each : doomed)
      engine->submit(each.request);
    const Answers answers = Answers().run(*engine);
    for (const auto& [id, answer] : expected.all()) {
      const Answer& found = answers.at(id);
      EXPECT_EQ(found.last.finish, FinishReason::length) << id;
      EXPECT_EQ(found.tokens, answer.tokens) << id;
    }
    for (const DoomedRequest& each : doomed) {
      const Answer& answer = answers.at(each.request.id);
      EXPECT_EQ(answer.last.finish, FinishReason::error) << each.request.id;
      EXPECT_EQ(answer.last.output_tokens, each.num_tokens) << each.request.id;
      EXPECT_NE(answer.last.finish_detail.find("no token can follow"), std::string::npos)
          << answer.last.finish_detail;
    }
    EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
    EXPECT_FALSE(engine->has_work());
  }
}

}  // namespace minfer::test
