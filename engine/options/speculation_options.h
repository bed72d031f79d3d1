#pragma once

#include <cstdint>
#include <memory>
#include <optional>

namespace minfer {

class ModelSource;

/// The source of draft tokens: none, the sequence's own text (prompt lookup), a smaller model, or the model's own layer for further tokens
/// (ModelConfig::has_draft_layer; also if that is an EAGLE-3 head).
enum class SpeculationMethod : uint8_t { off, ngram, draft, mtp };

/// The most draft tokens of a sequence in a step.
inline constexpr int32_t kMostDraftTokens = 16;
/// With states: the most tokens of a sequence in front of its drafts, a new one and those that a rejection makes it compute again.
inline constexpr int32_t kMostRepeatedTokens = 5;
/// The greatest length of the n-grams that are looked for.
inline constexpr int32_t kLongestNgram = 8;

struct SpeculationOptions {
  SpeculationMethod method = SpeculationMethod::off;
  bool is_asked_for = true;  ///< false: where drafts are not possible, there are none; else they are an error
  int32_t num_tokens = 8;    ///< the most draft tokens of a sequence in a step
  int32_t ngram_max = 4;     ///< tokens of the longest n-gram looked for
  int32_t ngram_min = 1;     ///< tokens of the shortest one
  /// True: as many drafts as pay, by the measured costs, or none. False: always as many as there can be, for tests and comparisons.
  bool adaptive = true;
  std::shared_ptr<ModelSource> draft_model = {};  ///< for SpeculationMethod::draft
  /// For measurements with models of random weights, whose drafts are hardly ever right: a draft
  /// token is accepted with this chance, whatever the model drew. The output is then not the model's.
  std::optional<double> synthetic_acceptance = {};
};

/// Draft tokens that were checked.
struct SpeculationCounts {
  int64_t drafts = 0;  ///< times that a sequence brought drafts
  int64_t draft_tokens = 0;
  int64_t accepted_tokens = 0;

  SpeculationCounts& operator+=(const SpeculationCounts& other) {
    drafts += other.drafts;
    draft_tokens += other.draft_tokens;
    accepted_tokens += other.accepted_tokens;
    return *this;
  }
};

}  // namespace minfer
