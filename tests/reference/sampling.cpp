#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/reference/ops.h"

namespace minfer::reference {
namespace {

constexpr double kForbidden = -std::numeric_limits<double>::infinity();

/// Mask, bias and penalties as vLLM and OpenAI define them; in f32 where double could break a tie.
std::vector<float> changed_logits(std::span<const float> logits, const SamplingRow& row) {
  std::vector<float> changed(logits.begin(), logits.end());
  for (float& logit : changed) {
    if (std::isnan(logit)) logit = static_cast<float>(kForbidden);
  }
  for (size_t token = 0; token < changed.size() && !row.allowed.empty(); ++token) {
    const bool is_allowed = (row.allowed[token / 32] >> (token % 32) & 1) != 0;
    if (!is_allowed) changed[token] = static_cast<float>(kForbidden);
  }
  for (const LogitBias& bias : row.biases)
    changed[bias.token] += bias.bias;
  for (const TokenCount& seen : row.counts) {
    float& logit = changed[seen.token];
    if (seen.output_count > 0 || seen.in_prompt) {
      logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    }
    if (seen.output_count > 0) {
      logit -= row.presence_penalty + row.frequency_penalty * static_cast<float>(seen.output_count);
    }
  }
  return changed;
}

/// Keeps the first `count` of `order`, sets the rest to 0, and scales the sum to 1.
void keep(std::vector<double>& probabilities, std::span<const size_t> order, size_t count) {
  for (size_t i = count; i < order.size(); ++i)
    probabilities[order[i]] = 0.0;
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& p : probabilities)
    p /= sum;
}

size_t shortest_prefix(const std::vector<double>& probabilities, std::span<const size_t> order, double mass) {
  double sum = 0.0;
  for (size_t i = 0; i < order.size(); ++i) {
    sum += probabilities[order[i]];
    if (sum >= mass) return i + 1;
  }
  return order.size();
}

}  // namespace

std::vector<double> log_softmax(std::span<const float> logits) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const float logit : logits)
    sum += std::exp(static_cast<double>(logit) - max);
  std::vector<double> logprobs;
  for (const float logit : logits)
    logprobs.push_back(static_cast<double>(logit) - max - std::log(sum));
  return logprobs;
}

std::vector<double> distribution(std::span<const float> logits, const SamplingRow& row) {
  const std::vector<float> changed = changed_logits(logits, row);
  std::vector<size_t> order(changed.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return changed[a] > changed[b]; });

  std::vector<double> probabilities(changed.size(), 0.0);
  if (row.temperature == 0.0f) {
    probabilities[order[0]] = 1.0;
    return probabilities;
  }
  const double max = changed[order[0]];
  for (size_t i = 0; i < changed.size(); ++i)
    probabilities[i] = std::exp((changed[i] - max) / row.temperature);
  keep(probabilities, order, order.size());
  if (row.top_k > 0)
    keep(probabilities, order, std::min<size_t>(static_cast<size_t>(row.top_k), order.size()));
  if (row.top_p < 1.0f) keep(probabilities, order, shortest_prefix(probabilities, order, row.top_p));
  const double least = row.min_p * probabilities[order[0]];
  const auto enough = [&](size_t token) { return probabilities[token] >= least; };
  keep(probabilities, order,
       static_cast<size_t>(std::ranges::partition_point(order, enough) - order.begin()));
  return probabilities;
}

}  // namespace minfer::reference
