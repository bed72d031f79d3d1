#pragma once

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"

namespace minfer::test {

/// All responses to one request, joined.
struct Answer {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<SampledToken> logprobs;
  std::vector<SampledToken> prompt_logprobs;
  std::vector<size_t> response_sizes;  ///< tokens of each response
  RequestOutput last;

  bool finished() const { return last.finish.has_value(); }
};

/// Answers by request id. Throws std::logic_error if a response follows a final one, or if its counts
/// contradict the tokens that came.
class Answers {
 public:
  void add(const RequestOutput& output) {
    Answer& answer = answers_[output.id];
    if (answer.finished()) throw std::logic_error(output.id + ": a response after the last");
    answer.text += output.text;
    answer.tokens.insert(answer.tokens.end(), output.tokens.begin(), output.tokens.end());
    answer.logprobs.insert(answer.logprobs.end(), output.logprobs.begin(), output.logprobs.end());
    if (!output.prompt_logprobs.empty() && output.output_tokens != static_cast<int32_t>(output.tokens.size()))
      throw std::logic_error(output.id + ": prompt_logprobs come with the first token");
    answer.prompt_logprobs.insert(answer.prompt_logprobs.end(), output.prompt_logprobs.begin(),
                                  output.prompt_logprobs.end());
    answer.response_sizes.push_back(output.tokens.size());
    answer.last = output;
    if (output.output_tokens != static_cast<int32_t>(answer.tokens.size()))
      throw std::logic_error(output.id + ": output_tokens is not the number of tokens that came");
  }

  /// One step of the engine.
  void step(Engine& engine) {
    for (const RequestOutput& output : engine.step())
      add(output);
  }
  /// Runs steps until there is no work left.
  Answers& run(Engine& engine) {
    while (engine.has_work())
      step(engine);
    return *this;
  }

  const Answer& at(const std::string& id) const { return answers_.at(id); }
  bool contains(const std::string& id) const { return answers_.contains(id); }
  size_t size() const { return answers_.size(); }
  const std::map<std::string, Answer>& all() const { return answers_; }

 private:
  std::map<std::string, Answer> answers_;
};

/// A greedy request of exactly that length, whatever the model draws.
inline Request greedy_request(std::string id, std::vector<TokenId> prompt, int32_t max_tokens) {
  Request request;
  request.id = std::move(id);
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

/// The request's answer from an engine that serves nothing else.
inline Answer answer_of(Engine& engine, const Request& request) {
  engine.submit(request);
  return Answers().run(engine).at(request.id);
}

/// Expects the answer that the request gets alone; if it was cancelled, the beginning of that answer.
inline void expect_as_alone(const Answer& answer, const Answer& alone, const std::string& id) {
  if (answer.last.finish == FinishReason::cancelled) {
    ASSERT_LE(answer.tokens.size(), alone.tokens.size()) << id;
    EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), alone.tokens.begin())) << id;
    return;
  }
  EXPECT_EQ(answer.tokens, alone.tokens) << id;
  EXPECT_EQ(answer.text, alone.text) << id;
  EXPECT_EQ(answer.last.finish, alone.last.finish) << id;
  EXPECT_EQ(answer.last.finish_detail, alone.last.finish_detail) << id;
  ASSERT_EQ(answer.logprobs.size(), alone.logprobs.size()) << id;
  for (size_t i = 0; i < answer.logprobs.size(); ++i)
    EXPECT_EQ(answer.logprobs[i].logprob, alone.logprobs[i].logprob) << id;
}

}  // namespace minfer::test
