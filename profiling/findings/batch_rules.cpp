// Rules about conditions that set steps apart: work beside an op, one long context, drafts, a load that outgrows the machine, or that ends.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "profiling/findings/measured_pairs.h"
#include "profiling/findings/rules.h"
#include "profiling/findings/step_model.h"

namespace minfer {
namespace {

constexpr int64_t kEnough = 8;        // steps, to say what drafts or a long context cost
constexpr double kMostlyQueue = 0.3;  // of the time to the first token
// The most that a long context costs, over the time that attention waits for it. An H200 measured 1.1.
constexpr double kBeyondWait = 1.25;

struct ConditionTexts {
  std::string_view when, advice;
};
constexpr std::string_view kLookAtOp =
    "look at the op and at what runs before it (profile trace, bench --kernels --op); larger pieces of "
    "prompts (--max-num-batched-tokens) pay this less often";
/// By StepCondition; the last one, eager, is the rule of graph misses.
constexpr std::array<ConditionTexts, static_cast<size_t>(StepCondition::eager)> kConditions{
    ConditionTexts{"beside prompts in the step", kLookAtOp},
    {"in steps of prompts alone", kLookAtOp},
    {"in steps with a preemption and after", "enlarge the KV cache: --kv-cache-memory or --num-blocks"},
    {"beside one much longer context", "serve long contexts on a server of their own, or few at once"},
    {"in the first step after a pause", "look for what sleeps meanwhile: clocks, threads, memory given back"},
    {"late in the recording", "look for what has changed since the start: clocks, other processes, memory"}};

/// One finding for each condition, of the op that lost most by it.
void unlike_itself(const Evidence& evidence, std::vector<Finding>& findings) {
  std::array<size_t, kConditions.size()> numbers{};  // of the finding of a condition, from 1
  const double wall_us = evidence.steps.wall_us, taken_us = evidence.host().any_waited_us;
  for (const Slowdown& slow : evidence.same_work.slowdowns()) {
    // Graph misses, slower with time and cores taken are rules of their own.
    const bool is_others = evidence.on_device || taken_us >= slow.beyond_us;
    if (slow.condition == StepCondition::eager || (slow.condition == StepCondition::later && is_others))
      continue;
    const auto condition = static_cast<size_t>(slow.condition);
    if (numbers[condition] > 0) {
      Finding& finding = findings[numbers[condition] - 1];
      finding.stake_us += slow.us;
      finding.gain += slow.beyond_us / wall_us;
      continue;
    }
    const auto calls = static_cast<double>(slow.calls);
    findings.push_back(
        {.evidence = fmt::format("{} took {:.1f} us a call {} ({} calls, {:.0f} % of the time), but {:.1f} "
                                 "us elsewhere for the same work; no op lost more to this",
                                 slow.op, slow.us / calls, kConditions[condition].when, slow.calls,
                                 percent_of(slow.us, wall_us), (slow.us - slow.beyond_us) / calls),
         .stake_us = slow.us,
         .gain = slow.beyond_us / wall_us,
         .advice = std::string(kConditions[condition].advice)});
    numbers[condition] = findings.size();
  }
}

void uneven_batch(const Evidence& evidence, std::vector<Finding>& findings) {
  const UnevenSteps& uneven = evidence.steps.uneven;
  if (uneven.steps.steps < kEnough) return;
  const double wall_us = evidence.steps.wall_us, steps = static_cast<double>(uneven.steps.steps);
  findings.push_back(
      {.evidence = fmt::format("in {} steps one of {:.1f} sequences had {:.0f} tokens of context, the others "
                               "{:.0f}: {:.0f} % of attention's time, {:.0f} us a step, went into its keys",
                               uneven.steps.steps, static_cast<double>(uneven.sequences) / steps,
                               uneven.longest / steps, uneven.others / steps,
                               percent_of(uneven.keys_us, uneven.attention_us), uneven.keys_us / steps),
       .stake_us = uneven.wait_us,
       .gain = uneven.keys_us / wall_us,
       .gain_from = likely_gain(uneven.keys_us / wall_us, evidence.on_device).from,
       .gain_to = kBeyondWait * uneven.wait_us / wall_us,
       .of = GainOf::throughput,
       .advice = std::string(kConditions[static_cast<size_t>(StepCondition::long_context)].advice) +
                 " (the gain is in the time of the others' tokens)"});
}

/// Drafts of the contexts and phases where they lost.
DraftUse losing_drafts(const Evidence& evidence) {
  DraftUse sum{.is_measured = true};
  for (const DraftUse& use : evidence.drafts.uses()) {
    if (use.steps < kEnough || use.lost_us() <= 0.0) continue;
    sum += use;
    sum.is_measured = sum.is_measured && use.is_measured;
  }
  return sum;
}

void drafts_that_lose(const Evidence& evidence, std::vector<Finding>& findings) {
  const DraftUse lost = losing_drafts(evidence);
  if (lost.steps == 0) return;
  const double wall_us = evidence.steps.wall_us, tokens = static_cast<double>(lost.tokens());
  // A model alone knows little of what checking costs. The gain is the middle between nothing and all of it.
  GainRange gain{.from = -1.0, .to = -1.0};
  double lost_us = lost.lost_us();
  if (!lost.is_measured) {
    gain = {.from = std::max(0.0, lost.lost_at_least_us() / wall_us),
            .to = std::max(lost_us, lost.lost_at_most_us()) / wall_us};
    lost_us = std::max(lost_us, 0.5 * (gain.from + gain.to) * wall_us);
  }
  std::string by_context;
  int64_t lose_from = -1;  // where shorter contexts gain
  for (const DraftUse& use : evidence.drafts.uses()) {
    if (use.from_context == 0 || use.phase != StepPhase::decode) continue;
    const bool loses = use.lost_us() > 0.0;
    lose_from = !loses ? 0 : lose_from == 0 ? use.from_context : lose_from;
    by_context += fmt::format("; from {} tokens of context on, {:.0f} % {}", use.from_context,
                              percent_of(std::abs(use.lost_us()), use.us), loses ? "lost" : "won");
  }
  findings.push_back(
      {.evidence = fmt::format(
           "{} steps checked draft tokens and gave {:.2f} tokens a sequence, each in {:.0f} us, without "
           "drafts in {:.0f} us ({}); {} of {} were accepted, and finding them took {:.0f} % of these steps' "
           "decoding time{}",
           lost.steps, tokens / static_cast<double>(lost.sequences), lost.us / tokens,
           lost.without_us / tokens,
           lost.is_measured ? "measured in steps that had none" : "by a model, since too few steps had none",
           lost.accepted, lost.proposed, percent_of(lost.draft_us, lost.us), lose_from < 0 ? "" : by_context),
       .stake_us = lost.us,
       .gain = lost_us / wall_us,
       .gain_from = gain.from,
       .gain_to = gain.to,
       .advice = fmt::format(
           "set --speculative off{}, or lower --num-speculative-tokens; without --no-adaptive-speculation, "
           "minfer itself holds back drafts that lose",
           lose_from > 0 ? fmt::format(" on a server for contexts of {} tokens and more", lose_from) : ""),
       .trials = multiples(evidence, "num-speculative-tokens", {0.5, 0.25}, {"--speculative off"})});
}

void overload(const Evidence& evidence, std::vector<Finding>& findings) {
  const RequestEvidence& requests = evidence.requests;
  const double times = requests.outpaced(), to_first_us = requests.queue_us + requests.prefill_us;
  if (times <= 0.0 || requests.queue_us < kMostlyQueue * to_first_us) return;
  const LineFit& wait = requests.wait_by_arrival;
  const double rate = static_cast<double>(requests.requests) * 1e9 /
                      static_cast<double>(requests.last_arrival_ns - requests.first_arrival_ns);
  const double share = requests.queue_us / to_first_us;
  const double alone_us =
      static_cast<double>(requests.prompt_tokens) * StepModel::prefill_token_us(evidence);  // of all prompts
  findings.push_back(
      {.evidence = fmt::format(
           "{:.3g} requests a second came, {:.2f} times as many as were served: the time to the first token "
           "grew by {:.0f} ms with each second; its mean was {:.1f} s, {:.0f} % of it in the queue",
           rate, times, 1e3 * wait.each(), wait.mean_y(), 100.0 * share),
       .stake_us = evidence.steps.waiting.us,
       .gain = share,
       .gain_from = share,
       .gain_to = std::max(share, 1.0 - alone_us / to_first_us),
       .of = GainOf::latency,
       .estimated = false,
       .advice = fmt::format("send no more than {:.3g} requests a second to this server: add servers, use a "
                             "faster device or type of weights, or set --max-queue-size, which turns "
                             "requests away early (the gain is in the time to the first token)",
                             rate / times)});
}

void shrinking_batch(const Evidence& evidence, std::vector<Finding>& findings) {
  const LastSteps& last = evidence.steps.last;
  if (!last.shrinks()) return;
  constexpr double kAtOnce = 0.1;
  if (evidence.requests.arriving_share() > kAtOnce) return;  // clients that stopped one by one
  const double share = last.steps.us / evidence.steps.wall_us, now = last.mean_sequences();
  const StepModel model(evidence, evidence.steps.of(StepPhase::decode).wall_by_tokens, StepPhase::decode);
  findings.push_back({.evidence = fmt::format(
                          "after the last prompt the batch shrank from {} sequences to a mean of {:.1f} in "
                          "{} steps ({:.0f} % of the time), and no request waited for the free places",
                          last.most, now, last.steps.steps, 100.0 * share),
                      .stake_us = last.steps.us,
                      .gain = share * (1.0 - model.token_cost(now, last.most)),
                      .of = GainOf::throughput,
                      .advice = "send requests with long answers first, or keep requests coming; no server "
                                "option helps, since the load ended"});
}

}  // namespace

double drafts_lost_us(const Evidence& evidence) {
  return losing_drafts(evidence).lost_us();
}

std::span<const Rule> batch_rules() {
  static constexpr std::array kRules{
      Rule{"overload", FindingGroup::requests, overload},
      Rule{"batch that shrinks", FindingGroup::requests, shrinking_batch},
      Rule{"drafts that lose", FindingGroup::requests, drafts_that_lose},
      Rule{"uneven batch", FindingGroup::requests, uneven_batch},
      Rule{"unlike itself", FindingGroup::kernels, unlike_itself},
  };
  return kRules;
}

}  // namespace minfer
