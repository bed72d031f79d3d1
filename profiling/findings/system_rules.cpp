// Rules about causes that keep the device, or the computing threads, from their work.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "profiling/findings/rules.h"

namespace minfer {
namespace {

constexpr double kSlowedDown = 0.05;  // of the speed of the same work, from early to late
// The speed that a further thread adds, relative to one thread. Two machines measured 0.3 and 0.7; a core of its own may give more.
constexpr double kThreadGain = 0.3, kThreadGainOfCore = 0.9;
constexpr double kGraphSavesUs = 0.4;  // a launch: 1B in Q4_K_M at batch 8, 135 launches a step, H200

double spans_us(const StepEvidence& steps, std::initializer_list<HostSpan> spans) {
  double us = 0.0;
  for (const HostSpan span : spans)
    us += steps.host_us[static_cast<size_t>(span)];
  return us;
}

HostSpan longest_span(const StepEvidence& steps) {
  constexpr std::array kSpans{HostSpan::schedule, HostSpan::build, HostSpan::launch, HostSpan::commit};
  return *std::ranges::max_element(kSpans, {}, [&](HostSpan span) { return spans_us(steps, {span}); });
}

void host_bound(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  // Drafts, masks, responses, late launches and copies have rules of their own.
  const double drafted_us = drafts_lost_us(evidence) > 0.0 ? steps.drafted_exposed_us : 0.0;
  const double others_us = std::min(
      steps.exposed_us(),
      drafted_us +
          spans_us(steps, {HostSpan::draft, HostSpan::mask, HostSpan::detokenise, HostSpan::respond}) +
          steps.idle_host_us + evidence.traced.copy_share() * steps.wall_us);
  const double us = steps.exposed_us() - others_us;
  const HostSpan longest = longest_span(steps);
  findings.push_back(
      {.evidence =
           fmt::format("no op ran in {:.0f} % of the steps' time, {:.0f} us a step, because the host was not "
                       "ready; its longest part is {}, {:.0f} us a step",
                       percent_of(us, steps.wall_us), us / static_cast<double>(steps.steps()), name(longest),
                       spans_us(steps, {longest}) / static_cast<double>(steps.steps())),
       .stake_us = us,
       .gain = us / steps.wall_us,
       .estimated = false,
       .advice = evidence.on_device ? "give the engine's thread a core of its own (taskset, no other work "
                                      "beside it); larger batches share the host's time"
                                    : "give the engine's thread a core of its own (fewer --threads, no "
                                      "other work beside it); look at what the span does"});
}

/// The time that the device waited for launches. 0 if they took no longer than launching does: the first of a kernel takes far longer.
double first_launches_us(const StepEvidence& steps) {
  constexpr double kLongLaunchUs = 300.0;
  return steps.idle_host_us > kLongLaunchUs * static_cast<double>(steps.late_ops) ? steps.idle_host_us : 0.0;
}

void launch_bound(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  // Without graphs: graph misses.
  if (steps.late_ops == 0 || !evidence.flag("cuda_graphs", true) || first_launches_us(steps) > 0.0) return;
  const double us = steps.idle_host_us - (drafts_lost_us(evidence) > 0.0 ? steps.drafted_late_us : 0.0);
  findings.push_back(
      {.evidence = fmt::format("the device waited for the host's launch of {} ops, {:.1f} a step: kernels "
                               "are shorter than launching them takes",
                               steps.late_ops,
                               static_cast<double>(steps.late_ops) / static_cast<double>(steps.steps())),
       .stake_us = us,
       .gain = us / steps.wall_us,
       .estimated = false,
       .advice = "replay decode steps as graphs, which do not wait (see graph misses); compute more prompt "
                 "tokens a step"});
}

void bubbles(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  findings.push_back(
      {.evidence =
           fmt::format("{:.1f} ms passed in {} gap(s) between steps while requests were ready to go on",
                       steps.bubble.us * 1e-3, steps.bubble.steps),
       .stake_us = steps.bubble.us,
       .gain = steps.bubble.us / steps.wall_us,
       .estimated = false,
       .advice =
           "free the thread that calls the engine, which was busy elsewhere: use fewer --threads than cores, "
           "run no other work beside it, and move a client library's callbacks to another thread"});
}

void synchronous_copies(const Evidence& evidence, std::vector<Finding>& findings) {
  const RangeEvidence& range = evidence.traced;
  if (range.copies == 0) return;
  const double share = range.copy_share();
  // The host launches later in a traced step than in others: the time behind a copy is the most that it may be.
  const double least = range.copy_us / range.step_us();
  findings.push_back(
      {.evidence =
           fmt::format("{:.1f} copies a traced step held up the device for {:.1f} us: {:.1f} us for "
                       "themselves, {:.1f} us until the host, which waited for them, launched more work",
                       static_cast<double>(range.copies) / static_cast<double>(range.steps),
                       (range.copy_us + range.behind_us) / static_cast<double>(range.steps),
                       range.copy_us / static_cast<double>(range.steps),
                       range.behind_us / static_cast<double>(range.steps)),
       .stake_us = share * evidence.steps.wall_us,
       .gain = 0.5 * (least + share),
       .gain_from = least,
       .gain_to = share,
       .estimated = false,
       .advice = "copy from page-locked memory, asynchronously, or have a kernel read what the host wrote"});
}

void graph_misses(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  if (steps.eager.steps == 0) return;
  const bool is_on = evidence.flag("cuda_graphs", true);
  const PhaseEvidence& decode = steps.of(StepPhase::decode);
  double saved = 0.0;
  if (steps.graph.steps > 0) {
    const double graph_us = steps.graph.us / static_cast<double>(steps.graph.steps);
    saved = std::max(0.0, 1.0 - graph_us * static_cast<double>(steps.eager.steps) / steps.eager.us);
  } else {
    // Idle time between ops is known where their ends are; where launching keeps up, launches still cost the device more.
    const double looked_at =
        steps.eager_looked_at.us > 0.0 ? steps.eager_looked_at_idle_us / steps.eager_looked_at.us : 0.0;
    saved =
        std::max({decode.exposed_us / decode.wall_us, looked_at,
                  std::min(0.5, kGraphSavesUs * static_cast<double>(steps.eager_launches) / steps.eager.us)});
  }
  findings.push_back(
      {.evidence =
           fmt::format("{} of {} decode steps replayed no graph ({:.2f} ms each{})", steps.eager.steps,
                       decode.steps, steps.eager.us * 1e-3 / static_cast<double>(steps.eager.steps),
                       steps.graph.steps == 0
                           ? std::string()
                           : fmt::format("; with one {:.2f} ms",
                                         steps.graph.us * 1e-3 / static_cast<double>(steps.graph.steps))),
       .stake_us = steps.eager.us,
       .gain = steps.eager.us / steps.wall_us * saved,
       .advice = is_on ? "lower --max-num-seqs to the largest graph's batch; some options of "
                         "requests have no graph either"
                       : "set --cuda-graphs",
       .trials = is_on ? std::vector<std::string>{} : std::vector<std::string>{"--cuda-graphs"}});
}

void padding(const Evidence& evidence, std::vector<Finding>& findings) {
  const StepEvidence& steps = evidence.steps;
  if (steps.padded_tokens == 0) return;
  const LineFit& fit = steps.of(StepPhase::decode).wall_by_tokens;
  const double share = static_cast<double>(steps.padded_tokens) /
                       static_cast<double>(steps.padded_tokens + steps.graph_tokens);
  const double us =
      fit.is_known() ? fit.each() * static_cast<double>(steps.padded_tokens) : 0.2 * share * steps.graph.us;
  findings.push_back(
      {.evidence = fmt::format("{:.0f} % of the tokens in graphs were padding ({} of {})", 100.0 * share,
                               steps.padded_tokens, steps.padded_tokens + steps.graph_tokens),
       .stake_us = us,
       .gain = us / steps.wall_us,
       .advice = "set --max-num-seqs so that batches match a graph's size"});
}

void cold_start(const Evidence& evidence, std::vector<Finding>& findings) {
  double us = 0.0, most_us = 0.0;
  int64_t kinds = 0;
  for (const auto& [key, kind] : evidence.kinds) {
    if (kind.later.steps < 4) continue;
    const double more_us = kind.first_us - kind.later.us / static_cast<double>(kind.later.steps);
    if (more_us <= 0.0) continue;
    us += more_us;
    most_us = std::max(most_us, more_us);
    ++kinds;
  }
  const StepEvidence& steps = evidence.steps;
  const double launches_us = first_launches_us(steps);
  if (kinds == 0 && launches_us <= 0.0) return;
  std::string text =
      launches_us > us
          ? fmt::format(
                "the device waited {:.1f} ms to launch {} op(s), as long as first launches of kernels take",
                launches_us * 1e-3, steps.late_ops)
          : fmt::format(
                "the first steps of {} kind(s) took {:.1f} ms more than later ones, one {:.1f} ms more",
                kinds, us * 1e-3, most_us * 1e-3);
  us = std::max(us, launches_us);
  findings.push_back({.evidence = std::move(text),
                      .stake_us = us,
                      .gain = us / evidence.steps.wall_us,
                      .estimated = false,
                      .advice = "send a few requests before the ones that count (bench --num-warmups), since "
                                "only the first requests pay this"});
}

void slower_with_time(const Evidence& evidence, std::vector<Finding>& findings) {
  const auto [early, late] = evidence.same_work.early_and_late();
  if (!evidence.on_device || early <= 0.0 || late < early * (1.0 + kSlowedDown)) return;
  const double lost = 1.0 - early / late;
  const double us = evidence.steps.of(StepPhase::decode).ops_us;
  const std::string clock = clock_with_time(evidence);
  findings.push_back(
      {.evidence =
           fmt::format("the same work of decoding took {:.0f} % longer late in the recording than early; {}",
                       100.0 * (late / early - 1.0),
                       clock.empty() ? "clocks were not read" : "the device's clock was " + clock),
       .stake_us = us * lost,
       .gain = us / evidence.steps.wall_us * lost,
       .advice = "look at cooling, the power limit and other work on the device if the clock fell, else at "
                 "other processes and longer contexts"});
}

void too_few_threads(const Evidence& evidence, std::vector<Finding>& findings) {
  const ProfileHeader& header = evidence.header();
  // Ranks on other hosts have their own cores, which the header does not tell.
  const int64_t threads = threads_of(evidence);
  if (header.backend != "cpu" || header.cores <= threads) return;
  const double us = evidence.steps.ops_us();
  const auto gain = [&](double of_thread) {
    const double times = static_cast<double>(header.cores - threads) / static_cast<double>(threads);
    return us / evidence.steps.wall_us * (1.0 - 1.0 / (1.0 + of_thread * times));
  };
  findings.push_back({.evidence = fmt::format("ops run on {} of {} cores and take {:.0f} % of the time",
                                              threads, header.cores, percent_of(us, evidence.steps.wall_us)),
                      .stake_us = us,
                      .gain = 0.5 * (gain(kThreadGain) + gain(kThreadGainOfCore)),
                      .gain_from = gain(kThreadGain),
                      .gain_to = gain(kThreadGainOfCore),
                      .advice = fmt::format("set --threads {}", header.cores),
                      .trials = {fmt::format("--threads {}", header.cores)}});
}

}  // namespace

std::span<const Rule> system_rules() {
  static constexpr std::array kRules{
      Rule{"host-bound", FindingGroup::system, host_bound},
      Rule{"launch-bound", FindingGroup::system, launch_bound},
      Rule{"bubbles", FindingGroup::system, bubbles},
      Rule{"synchronous copy", FindingGroup::system, synchronous_copies},
      Rule{"graph misses", FindingGroup::system, graph_misses},
      Rule{"padding", FindingGroup::system, padding},
      Rule{"cold start", FindingGroup::system, cold_start},
      Rule{"slower with time", FindingGroup::system, slower_with_time},
      Rule{"too few threads", FindingGroup::system, too_few_threads},
  };
  return kRules;
}

}  // namespace minfer
