// Rules about the engine's load, and about work that the engine holds back.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "profiling/findings/measured_pairs.h"
#include "profiling/findings/rules.h"
#include "profiling/findings/step_model.h"

namespace minfer {
namespace {

constexpr double kEnoughSequences = 8.0;  // what too little load is held against
constexpr double kGoodChunk = 512.0;      // tokens of a step, beside which reading the weights costs little
constexpr double kLongGap = 4.0;          // a step with prompts in it, over one that only decodes
constexpr double kFeltGapUs = 100'000.0;  // what MLPerf Inference allows a token of a served Llama 3.1 8B
constexpr double kOftenEnough = 0.01;     // of tokens: the 99th percentile of the gaps is among them
constexpr double kLongQueue = 0.3;  // of the requests' time: what comes at once waits for each other a little
constexpr double kKeepsComing = 0.5;      // of the time; what all comes at its begin waits for itself
constexpr int64_t kEnoughPredicted = 32;  // steps: those before, the cost model still learns from
constexpr double kWrong = 0.5;            // error of a step's time, of the measured one: the median of all
constexpr double kMasksOfTime = 0.1;      // less is what grammars cost
constexpr double kGoodInterval = 8.0;     // tokens between two responses

double mean(double sum, int64_t count) {
  return count > 0 ? sum / static_cast<double>(count) : 0.0;
}

/// The gain of more KV cache. It is likely what twice the sequences at once would save while the cache is full. It is at most what room
/// for all waiting requests would save in all decode steps. `again`: share of the time that computes what was thrown away.
Finding more_cache(const Evidence& evidence, double again) {
  const StepEvidence& steps = evidence.steps;
  const PhaseEvidence& decode = steps.of(StepPhase::decode);
  const double now = std::max(1.0, decode.mean_sequences());
  const StepModel model(evidence, decode.wall_by_tokens, StepPhase::decode);
  const double twice = steps.memory_full_decode_us / steps.wall_us * (1.0 - model.token_cost(now, 2.0 * now));
  const double all = decode.wall_us / steps.wall_us * (1.0 - model.token_cost(now, steps.memory_full_wanted));
  Finding finding{.gain = again + (1.0 - again) * twice,
                  .of = GainOf::throughput,
                  .advice =
                      "enlarge the KV cache: --kv-cache-memory or --num-blocks, on a GPU "
                      "--gpu-memory-utilization or --kv-cache-dtype fp8",
                  .trials = narrower_kv_trial(evidence, multiples(evidence, "num-blocks", {2.0}))};
  finding.gain_from = likely_gain(finding.gain, evidence.on_device).from;
  finding.gain_to = likely_gain(std::max(finding.gain, again + (1.0 - again) * all), evidence.on_device).to;
  return finding;
}

void too_little_load(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  if (steps.few.us < 0.2 * steps.wall_us) return;
  if (steps.last.shrinks() && steps.few.us <= steps.last.steps.us) return;  // batch that shrinks
  const double now = mean(static_cast<double>(steps.few_sequences), steps.few.steps);
  const StepModel model(evidence, steps.of(StepPhase::decode).wall_by_tokens, StepPhase::decode);
  const double share = steps.few.us / steps.wall_us;
  findings.push_back({.evidence = fmt::format("{} of {} steps decoded {:.1f} sequences while no request "
                                              "waited: each step reads all weights once, for few sequences",
                                              steps.few.steps, steps.steps(), now),
                      .stake_us = steps.few.us,
                      .gain = share * (1.0 - model.token_cost(now, kEnoughSequences)),
                      .of = GainOf::throughput,
                      .advice = "send more requests at once (the gain is for 8); with one at a time, use "
                                "quantised weights for shorter steps"});
}

void batch_too_small(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  if (steps.slots_full.us <= 0.0) return;
  const PhaseEvidence& decode = steps.of(StepPhase::decode);
  const double now = std::max(1.0, decode.mean_sequences());
  const StepModel model(evidence, decode.wall_by_tokens, StepPhase::decode);
  findings.push_back(
      {.evidence =
           fmt::format("requests waited in {} steps ({:.0f} % of the time) in which all {} slots were taken",
                       steps.slots_full.steps, percent_of(steps.slots_full.us, steps.wall_us),
                       evidence.option("max_num_seqs")),
       .stake_us = steps.slots_full.us,
       .gain = steps.slots_full.us / steps.wall_us * (1.0 - model.token_cost(now, 2.0 * now)),
       .of = GainOf::throughput,
       .advice = fmt::format("set --max-num-seqs {}", 2 * evidence.option("max_num_seqs")),
       .trials = multiples(evidence, "max-num-seqs", {2.0, 4.0})});
}

/// Computing again what was thrown away, and the places that are missing beside.
void preemption_thrash(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  const RequestEvidence& requests = evidence.requests;
  if (steps.preempted == 0 || steps.wall_us <= 0.0) return;
  const double again_us =
      static_cast<double>(requests.recomputed_tokens) * StepModel::prefill_token_us(evidence);
  const double again = std::min(1.0, again_us / steps.wall_us);
  Finding& finding = findings.emplace_back(more_cache(evidence, again));
  finding.evidence = fmt::format(
      "{} preemption(s): {} of {} requests computed {} tokens again ({:.0f} % of all that were computed); "
      "the cache was full in {:.0f} % of the time",
      steps.preempted, requests.preempted_requests, requests.requests, requests.recomputed_tokens,
      percent_of(static_cast<double>(requests.recomputed_tokens),
                 static_cast<double>(steps.prefill_tokens() + steps.decode_tokens())),
      percent_of(steps.memory_full.us, steps.wall_us));
  finding.stake_us = std::max(again_us, steps.memory_full.us);
  finding.advice += "; or lower --max-num-seqs for fewer sequences at once";
  finding.trials = multiples(evidence, "max-num-seqs", {0.5}, std::move(finding.trials));
}

void cache_too_small(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  if (steps.preempted > 0 || steps.memory_full.us <= 0.0) return;
  Finding& finding = findings.emplace_back(more_cache(evidence, 0.0));
  finding.evidence = fmt::format(
      "requests waited in {} steps ({:.0f} % of the time) in which the KV cache was full and slots were free",
      steps.memory_full.steps, percent_of(steps.memory_full.us, steps.wall_us));
  finding.stake_us = steps.memory_full.us;
}

void prefill_starves_decode(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  const PhaseEvidence& mixed = steps.of(StepPhase::mixed);
  const PhaseEvidence& decode = steps.of(StepPhase::decode);
  if (mixed.steps < 4 || decode.steps < 4) return;
  const double ratio = mixed.mean_wall_us() / decode.mean_wall_us();
  const auto tokens = static_cast<double>(steps.decode_tokens());
  if (ratio < kLongGap || mixed.mean_wall_us() < kFeltGapUs) return;
  if (static_cast<double>(steps.blocked_tokens) < kOftenEnough * tokens) return;
  const double mean_chunk = mean(static_cast<double>(mixed.prefill_tokens), mixed.steps);
  const double target_ms = std::max(1.0, 2e-3 * decode.mean_wall_us());
  findings.push_back(
      {.evidence =
           fmt::format("{:.0f} % of the tokens came in steps that also computed {:.0f} tokens of prompts and "
                       "took {:.1f} ms, {:.1f} times as long as steps that only decode (longest {:.1f} ms)",
                       percent_of(static_cast<double>(steps.blocked_tokens), tokens), mean_chunk,
                       mixed.mean_wall_us() * 1e-3, ratio, steps.longest_mixed_us * 1e-3),
       .stake_us = mixed.wall_us - static_cast<double>(mixed.steps) * decode.mean_wall_us(),
       .gain = 1.0 - 2.0 / ratio,
       .of = GainOf::latency,
       .advice = fmt::format("cut prompts into shorter pieces beside decoding: --target-itl-ms {:.0f} or "
                             "--max-num-batched-tokens {:.0f} (the gain is in the longest gaps between "
                             "tokens; prompts take somewhat longer)",
                             target_ms, std::max(16.0, mean_chunk * 2.0 / ratio)),
       .trials = multiples(evidence, "max-num-batched-tokens", {0.25},
                           {fmt::format("--target-itl-ms {:.0f}", target_ms), "--target-itl-ms auto"})});
}

void wrong_predictions(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  const PhaseEvidence& mixed = steps.of(StepPhase::mixed);
  const PredictionError error = steps.mixed_errors.result();
  if (error.steps < kEnoughPredicted || error.median < kWrong) return;
  findings.push_back(
      {.evidence = fmt::format(
           "{} steps with prompts beside decoding missed the time that their tokens were chosen for: {:.0f} "
           "% off in the median, {:.0f} % at the 95th percentile, {:.0f} % of them longer",
           error.steps, 100.0 * error.median, 100.0 * error.p95,
           percent_of(static_cast<double>(error.longer), static_cast<double>(error.steps))),
       .stake_us = mixed.wall_us,
       .gain = std::min(1.0, error.median),
       .of = GainOf::latency,
       .advice = "look for what makes equal steps differ (other processes, clocks), since --target-itl-ms is "
                 "not kept; a fixed --max-num-batched-tokens needs no prediction",
       .trials = {"--target-itl-ms 0"}});
}

void decode_starves_prefill(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  const RequestEvidence& requests = evidence.requests;
  if (steps.decode_fills_budget.us <= 0.0) return;
  const double to_first_us = requests.queue_us + requests.prefill_us;
  const double waited = to_first_us > 0.0 ? requests.queue_us / to_first_us : 1.0;
  findings.push_back(
      {.evidence = fmt::format("prompts waited in {} steps in which decoding took most of the {} tokens that "
                               "a step may have; {:.0f} % of the time to the first token passed in the queue",
                               steps.decode_fills_budget.steps, evidence.option("max_num_batched_tokens"),
                               100.0 * waited),
       .stake_us = steps.decode_fills_budget.us,
       .gain = waited * steps.decode_fills_budget.us / std::max(steps.waiting.us, 1.0),
       .of = GainOf::latency,
       .advice =
           fmt::format("set --max-num-batched-tokens {}", 4 * evidence.option("max_num_batched_tokens")),
       .trials = multiples(evidence, "max-num-batched-tokens", {4.0})});
}

void tiny_chunks(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  const auto budget = static_cast<double>(evidence.option("max_num_batched_tokens"));
  if (steps.cut_prefill.us <= 0.0 || budget <= 0.0 || budget >= kGoodChunk) return;
  const StepPhase phase = steps.of(StepPhase::prefill).wall_us >= steps.of(StepPhase::mixed).wall_us
                              ? StepPhase::prefill
                              : StepPhase::mixed;
  const StepModel model(evidence, steps.wall_by_tokens, phase);
  findings.push_back(
      {.evidence = fmt::format("prompts were cut into pieces of {:.0f} tokens in {} steps ({:.0f} % of the "
                               "time): each reads all weights again",
                               mean(static_cast<double>(steps.cut_tokens), steps.cut_prefill.steps),
                               steps.cut_prefill.steps, percent_of(steps.cut_prefill.us, steps.wall_us)),
       .stake_us = steps.cut_prefill.us,
       .gain = steps.cut_prefill.us / steps.wall_us * (1.0 - model.token_cost(budget, kGoodChunk)),
       .advice = fmt::format("set --max-num-batched-tokens {:.0f} or more", kGoodChunk),
       .trials = {"--max-num-batched-tokens 512", "--max-num-batched-tokens 2048"}});
}

void prefix_not_cached(const Evidence& evidence, std::vector<Finding>& findings) {
  const RequestEvidence& requests = evidence.requests;
  if (requests.missed_tokens == 0) return;
  // For sequences with states (gated delta nets), a prefix is found only where a copy of the state is kept.
  const bool is_recurrent = evidence.flag("is_recurrent", false);
  const std::string more_copies = is_recurrent ? ", keep more copies of states (--num-state-copies)" : "";
  const bool is_on = evidence.flag("enable_prefix_caching", true);
  const double us = static_cast<double>(requests.missed_tokens) * StepModel::prefill_token_us(evidence);
  findings.push_back(
      {.evidence = fmt::format("{} of {} prompts began like an earlier one: {} of their tokens were computed "
                               "again ({:.0f} % of all prompt tokens), {} came from the cache",
                               requests.missed_requests, requests.requests, requests.missed_tokens,
                               percent_of(static_cast<double>(requests.missed_tokens),
                                          static_cast<double>(requests.prompt_tokens)),
                               requests.cached_tokens),
       .stake_us = us,
       .gain = us / evidence.steps.wall_us,
       .estimated = false,
       .advice =
           is_on ? "enlarge the KV cache (--kv-cache-memory, --num-blocks)" + more_copies +
                       ", keep blocks on a disk (minfer serve --kv-cache-dir), which are read where that is "
                       "faster than computing, or send prompts that begin alike soon after each other; their "
                       "blocks were "
                       "evicted, or what they share fills no block"
           : is_recurrent ? "set --enable-prefix-caching, with room for --num-state-copies"
                          : "set --enable-prefix-caching",
       .trials = is_on ? multiples(evidence, "num-blocks", {2.0})
                       : std::vector<std::string>{"--enable-prefix-caching"}});
}

void slow_clients(const Evidence& evidence, std::vector<Finding>& findings) {
  const RequestEvidence& requests = evidence.requests;
  if (requests.client_wait_us <= 0.0) return;
  const double share = requests.client_wait_us / requests.waited_for_us;
  const double interval = mean(static_cast<double>(requests.stream_interval), requests.requests);
  findings.push_back(
      {.evidence = fmt::format("answers waited {:.0f} % of the requests' time for their clients to take what "
                               "was sent before, with a response every {:.1f} tokens",
                               100.0 * share, interval),
       .stake_us = share * evidence.steps.wall_us,
       .gain = share * std::max(0.0, 1.0 - interval / kGoodInterval),
       .of = GainOf::latency,
       .advice = fmt::format("send fewer, larger responses: --stream-interval {:.0f} (the gain is in the "
                             "requests' time); the engine itself waits for no client",
                             kGoodInterval),
       .trials = {"--stream-interval 8"}});
}

void slow_responses(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  const double detokenise_us = steps.host_us[static_cast<size_t>(HostSpan::detokenise)];
  const double respond_us = steps.host_us[static_cast<size_t>(HostSpan::respond)];
  const double us = std::min(detokenise_us + respond_us, steps.exposed_us());
  const auto interval = static_cast<double>(evidence.option("stream_interval", 1));
  if (us <= 0.0) return;
  findings.push_back(
      {.evidence = fmt::format("turning tokens into text took {:.1f} ms and handing answers over {:.1f} ms "
                               "while no op ran, with a response every {:.0f} token(s)",
                               detokenise_us * 1e-3, respond_us * 1e-3, interval),
       .stake_us = us,
       .gain = us / steps.wall_us * std::max(0.0, 1.0 - interval / kGoodInterval),
       .advice = fmt::format("set --stream-interval {:.0f}", kGoodInterval),
       .trials = {"--stream-interval 8"}});
}

void slow_masks(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  const double mask_us = steps.host_us[static_cast<size_t>(HostSpan::mask)];
  const double us = std::min(mask_us, steps.exposed_us());
  if (us <= 0.0 || us < kMasksOfTime * steps.wall_us) return;
  findings.push_back(
      {.evidence = fmt::format("finding the tokens that grammars allow took {:.0f} % of the steps' time, "
                               "{:.0f} us for each of {} tokens drawn under one",
                               percent_of(mask_us, steps.wall_us), mean(mask_us, steps.constrained_rows),
                               steps.constrained_rows),
       .stake_us = us,
       .gain = us / steps.wall_us,
       .estimated = false,
       .advice = "use the same grammar in many requests, since what one has found out serves all; use fixed "
                 "texts instead of open ones, and fewer alternatives that begin alike"});
}

void queueing(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  const RequestEvidence& requests = evidence.requests;
  const double explained_us = steps.slots_full.us + steps.memory_full.us + steps.decode_fills_budget.us;
  const double us = steps.waiting.us - explained_us;
  if (us <= 0.0 || requests.requests == 0 || requests.queue_us < kLongQueue * requests.total_us()) return;
  if (requests.arriving_share() < kKeepsComing || requests.outpaced() > 0.0) return;
  const double budget = static_cast<double>(evidence.option("max_num_batched_tokens"));
  if (budget < kGoodChunk) return;  // pieces are tiny: that is what they wait for
  findings.push_back(
      {.evidence = fmt::format("requests waited {:.1f} ms each for their first step, {:.0f} % of their time, "
                               "behind the prompts of others",
                               requests.queue_us * 1e-3 / static_cast<double>(requests.requests),
                               percent_of(requests.queue_us, requests.total_us())),
       .stake_us = us,
       .gain = us / steps.waiting.us * requests.queue_us / requests.total_us(),
       .of = GainOf::latency,
       .estimated = false,
       .advice = "send fewer requests at once (--max-queue-size turns them away early), use a faster device, "
                 "or add a second server: more come at once than this machine computes",
       .trials = {"--scheduling-policy shortest"}});
}

}  // namespace

std::span<const Rule> request_rules() {
  static constexpr std::array kRules{
      Rule{"too little load", FindingGroup::requests, too_little_load},
      Rule{"batch too small", FindingGroup::requests, batch_too_small},
      Rule{"preemption thrash", FindingGroup::requests, preemption_thrash},
      Rule{"KV cache too small", FindingGroup::requests, cache_too_small},
      Rule{"prefill starves decode", FindingGroup::requests, prefill_starves_decode},
      Rule{"step times mispredicted", FindingGroup::requests, wrong_predictions},
      Rule{"decode starves prefill", FindingGroup::requests, decode_starves_prefill},
      Rule{"tiny chunks", FindingGroup::requests, tiny_chunks},
      Rule{"prefix not cached", FindingGroup::requests, prefix_not_cached},
      Rule{"clients too slow", FindingGroup::requests, slow_clients},
      Rule{"responses too often", FindingGroup::requests, slow_responses},
      Rule{"slow grammars", FindingGroup::requests, slow_masks},
      Rule{"queueing", FindingGroup::requests, queueing},
  };
  return kRules;
}

}  // namespace minfer
