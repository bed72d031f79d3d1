#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/base/random.h"
#include "kernels/cpu/ops.h"
#include "kernels/token_weight.h"

// Turns a row of logits into a token. SamplingRow has the steps and their order, kernels/sampling.h the draw. With top_k, top_k and
// top_p each cut the vocabulary, ordered by logit, after some token; min_p cuts by probability; and the draw walks the rest in the
// order of token ids. Without top_k, tokens are tried. Sums over the vocabulary are in double.
namespace minfer::cpu {
namespace {

/// The logit of a token that may not be drawn.
constexpr float kForbidden = -std::numeric_limits<float>::infinity();

/// Scratch memory of a thread, an element a token each.
struct RowScratch {
  std::span<float> logits;         ///< changed by mask, bias and penalties
  std::span<float> probabilities;  ///< not normalised: the largest is 1
  std::span<int32_t> tokens;
};

int64_t whole_lines(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

RowScratch lay_out(char* memory, int64_t vocabulary) {
  const auto size = static_cast<size_t>(vocabulary);
  const int64_t stride = whole_lines(vocabulary * 4);
  return {{reinterpret_cast<float*>(memory), size},
          {reinterpret_cast<float*>(memory + stride), size},
          {reinterpret_cast<int32_t*>(memory + 2 * stride), size}};
}

void copy_without_nan(const float* logits, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = std::isnan(logits[i]) ? kForbidden : logits[i];
}

int64_t mask_words(int64_t vocabulary) {
  return (vocabulary + 31) / 32;
}

/// Grammars' masks allow few tokens or nearly all, so most of their words are all zeros or all ones.
void forbid_others(std::span<const uint32_t> allowed, std::span<float> logits) {
  for (size_t word = 0; word < allowed.size(); ++word) {
    const uint32_t bits = allowed[word];
    if (bits == ~uint32_t{0}) continue;
    const std::span<float> of_word =
        logits.subspan(word * 32, std::min<size_t>(32, logits.size() - word * 32));
    if (bits == 0) {
      std::ranges::fill(of_word, kForbidden);
      continue;
    }
    for (size_t bit = 0; bit < of_word.size(); ++bit) {
      if ((bits >> bit & 1) == 0) of_word[bit] = kForbidden;
    }
  }
}

/// The lowest token among those with the largest logit; -1 if none is above -inf.
int32_t argmax(std::span<const float> logits, const LaneKernels& lanes) {
  const float largest = lanes.max_row(logits.data(), static_cast<int64_t>(logits.size()));
  if (largest == kForbidden) return -1;
  return static_cast<int32_t>(std::ranges::find(logits, largest) - logits.begin());
}

bool changes_logits(const SamplingRow& row) {
  return !row.allowed.empty() || !row.biases.empty() || (has_penalties(row) && !row.counts.empty());
}

void change_logits(const SamplingRow& row, std::span<float> logits) {
  forbid_others(row.allowed, logits);
  for (const LogitBias& bias : row.biases) {
    float& logit = logits[static_cast<size_t>(bias.token)];
    logit += bias.bias;
    if (std::isnan(logit)) logit = kForbidden;  // infinity, forbidden
  }
  for (const TokenCount& seen : row.counts) {
    float& logit = logits[static_cast<size_t>(seen.token)];
    if (seen.in_prompt || seen.output_count > 0) {
      logit = logit > 0.0f ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    }
    if (seen.output_count > 0) {
      logit -= row.presence_penalty + row.frequency_penalty * static_cast<float>(seen.output_count);
    }
  }
}

/// The order of likelihood: the larger logit first, the lower token first among equals.
bool comes_before(std::span<const float> logits, int32_t a, int32_t b) {
  return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/// The first `count` tokens in that order, without tokens of -inf. No logit is NaN.
std::span<const int32_t> likeliest(std::span<const float> logits, int64_t count, std::span<int32_t> tokens) {
  if (count == 0) return {};
  auto end = tokens.begin();
  for (int32_t i = 0; i < std::ssize(logits); ++i) {
    if (logits[i] > kForbidden) *end++ = i;
  }
  const auto cut = tokens.begin() + std::min<int64_t>(count, end - tokens.begin());
  const auto before = [&](int32_t a, int32_t b) { return comes_before(logits, a, b); };
  constexpr int64_t kMostByHeap = 1024;  // beyond, it is faster to find the cut first
  if (count <= kMostByHeap) {
    std::partial_sort(tokens.begin(), cut, end, before);
  } else {
    if (cut != end) std::nth_element(tokens.begin(), cut, end, before);
    std::sort(tokens.begin(), cut, before);
  }
  return {tokens.begin(), cut};
}

double sum_of(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values)
    sum += static_cast<double>(value);
  return sum;
}

/// Fills logprob and top of `out`, whose token is set, from the raw logits.
void report_logprobs(std::span<const float> logits, int32_t top, const RowScratch& scratch,
                     const LaneKernels& lanes, SampledToken& out) {
  const auto size = static_cast<int64_t>(logits.size());
  const float max = lanes.max_row(logits.data(), size);
  lanes.exp_row(logits.data(), max, 1.0f, size, scratch.probabilities.data());
  const double normaliser = static_cast<double>(max) + std::log(sum_of(scratch.probabilities));
  const auto logprob = [&](int32_t token) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(token)]) - normaliser);
  };
  out.logprob = logprob(out.token);
  out.top.clear();
  for (const int32_t token : likeliest(logits, top, scratch.tokens))
    out.top.push_back({token, logprob(token)});
  std::ranges::sort(out.top, {},
                    [](const TokenLogprob& each) { return std::pair(-each.logprob, each.token); });
}

/// Inverse transform: the first token with holds(token) at which the running sum of such tokens passes the random share of `mass`.
template <class Holds>
int32_t draw(std::span<const float> probabilities, const Holds& holds, double mass, double random) {
  const double share = random * mass;
  double sum = 0.0;
  int32_t last = -1;
  for (int32_t i = 0; i < std::ssize(probabilities); ++i) {
    if (probabilities[i] <= kLeastWeight || !holds(i)) continue;
    last = i;
    sum += probabilities[i];
    if (sum > share) break;
  }
  return last;
}

template <class Holds>
double mass_of(std::span<const float> probabilities, const Holds& holds) {
  double mass = 0.0;
  for (int32_t i = 0; i < std::ssize(probabilities); ++i) {
    if (holds(i)) mass += probabilities[i];
  }
  return mass;
}

int32_t draw_within_top_k(const SamplingRow& row, const RowScratch& scratch) {
  const std::span<const float> probabilities = scratch.probabilities;
  std::span<const int32_t> kept = likeliest(scratch.logits, row.top_k, scratch.tokens);
  if (row.top_p < 1.0f) {
    double mass = 0.0, sum = 0.0;
    for (const int32_t token : kept)
      mass += probabilities[token];
    size_t count = 0;
    do {
      sum += probabilities[kept[count++]];
    } while (count < kept.size() && sum < static_cast<double>(row.top_p) * mass);
    kept = kept.first(count);
  }
  const float least = std::min(row.min_p, 1.0f);
  const int32_t last = kept.back();
  const auto holds = [&](int32_t i) {
    return probabilities[i] >= least && !comes_before(scratch.logits, last, i);
  };
  return draw(probabilities, holds, mass_of(probabilities, holds), uniform(row.seed, row.position));
}

/// Rejection. Tokens are ordered by probability, lower token first among equals. A token is kept if the tokens before it have
/// less than top_p of all probability. If it is not kept, only those before it take part in the next try.
int32_t draw_by_tries(const SamplingRow& row, const RowScratch& scratch) {
  const std::span<const float> probabilities = scratch.probabilities;
  double mass = mass_of(probabilities, [](int32_t) { return true; });
  const double goal = row.top_p < 1.0f ? static_cast<double>(row.top_p) * mass : 2.0 * mass;
  int32_t token = -1;
  for (uint32_t attempt = 0;; ++attempt) {
    const auto takes_part = [&](int32_t i) {
      return token < 0 || probabilities[i] > probabilities[token] ||
             (probabilities[i] == probabilities[token] && i < token);
    };
    token = draw(probabilities, takes_part, mass, uniform(row.seed, row.position, attempt));
    if (row.top_p >= 1.0f && probabilities[token] >= row.min_p) return token;
    mass = mass_of(probabilities, takes_part);
    if (mass == 0.0 || (mass < goal && probabilities[token] >= row.min_p)) return token;
  }
}

/// Draws a token; -1 if every token is NaN or forbidden.
int32_t choose(const SamplingRow& row, const RowScratch& scratch, const LaneKernels& lanes) {
  const int32_t best = argmax(scratch.logits, lanes);
  if (best < 0 || row.temperature == 0.0f) return best;
  const float max = scratch.logits[static_cast<size_t>(best)];
  if (max == std::numeric_limits<float>::infinity()) return best;  // it has all the probability
  const auto size = static_cast<int64_t>(scratch.logits.size());
  lanes.weight_row(scratch.logits.data(), max, row.temperature, size, scratch.probabilities.data());
  return row.top_k > 0 && row.top_k < size ? draw_within_top_k(row, scratch) : draw_by_tries(row, scratch);
}

void sample_row(std::span<const float> logits, const SamplingRow& row, const RowScratch& scratch,
                const LaneKernels& lanes, SampledToken& out) {
  const bool plain_greedy = row.temperature == 0.0f && row.top_logprobs < 0 && !changes_logits(row);
  if (plain_greedy) {
    out.token = argmax(logits, lanes);
    return;
  }
  copy_without_nan(logits.data(), scratch.logits);
  change_logits(row, scratch.logits);
  out.token = choose(row, scratch, lanes);
  if (out.token < 0 || row.top_logprobs < 0) return;
  copy_without_nan(logits.data(), scratch.logits);
  report_logprobs(scratch.logits, row.top_logprobs, scratch, lanes, out);
}

void check_row(size_t index, const SamplingRow& row, int64_t vocabulary) {
  const auto check_token = [&](std::string_view what, int32_t token) {
    if (token < 0 || token >= vocabulary) {
      fail("sample: row {}: {} of token {}, expected 0 to {}", index, what, token, vocabulary - 1);
    }
  };
  for (const LogitBias& bias : row.biases)
    check_token("bias", bias.token);
  for (const TokenCount& seen : row.counts)
    check_token("count", seen.token);
  if (!row.allowed.empty() && std::ssize(row.allowed) != mask_words(vocabulary)) {
    fail("sample: row {}: mask of {} words, expected {} for a vocabulary of {}", index, row.allowed.size(),
         mask_words(vocabulary), vocabulary);
  }
  if (!(row.temperature >= 0.0f))
    fail("sample: row {}: temperature {}, expected >= 0", index, row.temperature);
  if (!(row.repetition_penalty > 0.0f)) {
    fail("sample: row {}: repetition penalty {}, expected > 0", index, row.repetition_penalty);
  }
}

}  // namespace

void sample(const Tensor& logits, std::span<const SamplingRow> rows, std::span<SampledToken> out,
            const OpContext& context) {
  const auto count = static_cast<int64_t>(rows.size());
  check_f32("sample: logits", logits, count, logits.cols);
  if (out.size() != rows.size()) fail("sample: {} rows, room for {} tokens", rows.size(), out.size());
  for (size_t i = 0; i < rows.size(); ++i)
    check_row(i, rows[i], logits.cols);

  const int64_t bytes = 3 * whole_lines(logits.cols * 4);
  auto* memory =
      static_cast<char*>(context.workspace->take(static_cast<size_t>(context.pool->threads() * bytes)));
  for_each_part(count, count * logits.cols, context, [&](int64_t i, int32_t thread) {
    const std::span<const float> row(logits.f32_row(i), static_cast<size_t>(logits.cols));
    sample_row(row, rows[static_cast<size_t>(i)], lay_out(memory + thread * bytes, logits.cols),
               *context.lanes, out[static_cast<size_t>(i)]);
  });
}

}  // namespace minfer::cpu
