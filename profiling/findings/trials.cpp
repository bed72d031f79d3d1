#include "profiling/findings/trials.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace minfer {
namespace {

using Trials = std::vector<std::string>;

/// An option of a number at these multiples of what is in force.
Trials multiples(const Evidence& evidence, std::string_view option, std::initializer_list<double> factors) {
  std::string name(option);
  std::ranges::replace(name, '-', '_');
  Trials trials;
  for (const double factor : factors) {
    const double value = std::round(factor * static_cast<double>(evidence.option(name)));
    if (value >= 1.0) trials.push_back(fmt::format("--{} {:.0f}", option, value));
  }
  return trials;
}

Trials narrower_kv_cache(const Evidence& evidence) {
  const std::string_view type = evidence.text("kv_cache_dtype");
  if (evidence.on_device() && (type == "bf16" || type == "f16")) return {"--kv-cache-dtype fp8"};
  if (!evidence.on_device() && type == "f32") return {"--kv-cache-dtype f16"};
  return {};
}

Trials joined(Trials first, const Trials& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Trials larger_cache(const Evidence& evidence) {
  return joined(multiples(evidence, "num-blocks", {2.0}), narrower_kv_cache(evidence));
}

Trials shorter_pieces(const Evidence& evidence) {
  const double decode_us = evidence.steps().of(StepPhase::decode).mean_wall_us();
  return joined(
      {fmt::format("--target-itl-ms {:.0f}", std::max(1.0, 2e-3 * decode_us)), "--target-itl-ms auto"},
      multiples(evidence, "max-num-batched-tokens", {0.25}));
}

Trials fewer_bytes_of(const Evidence& evidence) {
  Trials trials = narrower_kv_cache(evidence);
  const bool has_wide_weights = std::ranges::any_of(evidence.ops(), [](const OpEvidence& op) {
    return op.weights > 0.0 && op.weight_bytes >= 2.0 * op.weights;
  });
  if (evidence.on_device() && has_wide_weights) trials.emplace_back("--quantization fp8");
  return trials;
}

Trials all_cores(const Evidence& evidence) {
  return {fmt::format("--threads {}", std::max(1, evidence.header().cores))};
}

struct TrialsOf {
  std::string_view rule;
  Trials (*trials)(const Evidence&);
};

constexpr std::array kTrials{
    TrialsOf{"batch too small",
             [](const Evidence& e) {
               return multiples(e, "max-num-seqs", {2.0, 4.0});
             }},
    TrialsOf{"preemption thrash",
             [](const Evidence& e) { return joined(larger_cache(e), multiples(e, "max-num-seqs", {0.5})); }},
    TrialsOf{"KV cache too small", larger_cache},
    TrialsOf{"prefill starves decode", shorter_pieces},
    TrialsOf{"step times mispredicted", [](const Evidence&) { return Trials{"--target-itl-ms 0"}; }},
    TrialsOf{"decode starves prefill",
             [](const Evidence& e) { return multiples(e, "max-num-batched-tokens", {4.0}); }},
    TrialsOf{"tiny chunks",
             [](const Evidence&) {
               return Trials{"--max-num-batched-tokens 512", "--max-num-batched-tokens 2048"};
             }},
    TrialsOf{"prefix not cached",
             [](const Evidence& e) {
               return e.flag("enable_prefix_caching", true) ? multiples(e, "num-blocks", {2.0})
                                                            : Trials{"--enable-prefix-caching"};
             }},
    TrialsOf{"clients too slow", [](const Evidence&) { return Trials{"--stream-interval 8"}; }},
    TrialsOf{"responses too often", [](const Evidence&) { return Trials{"--stream-interval 8"}; }},
    TrialsOf{"drafts that lose",
             [](const Evidence& e) {
               return joined({"--speculative off"}, multiples(e, "num-speculative-tokens", {0.5, 0.25}));
             }},
    TrialsOf{"queueing", [](const Evidence&) { return Trials{"--scheduling-policy shortest"}; }},
    TrialsOf{
        "graph misses",
        [](const Evidence& e) { return e.flag("cuda_graphs", true) ? Trials{} : Trials{"--cuda-graphs"}; }},
    TrialsOf{"too few threads", all_cores},
    TrialsOf{"more threads than cores", all_cores},
    TrialsOf{"wide KV cache", narrower_kv_cache},
    TrialsOf{"memory-bound", fewer_bytes_of},
};

}  // namespace

Trials trials_of(std::string_view rule, const Evidence& evidence) {
  const auto found = std::ranges::find(kTrials, rule, &TrialsOf::rule);
  return found == kTrials.end() ? Trials{} : found->trials(evidence);
}

bool changes_answers(std::string_view trial) {
  return trial.starts_with("--kv-cache-dtype") || trial.starts_with("--quantization");
}

}  // namespace minfer
