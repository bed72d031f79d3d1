#include <algorithm>
#include <array>

#include "profiling/json/line_members.h"

namespace minfer {

template <class Json>
void members(Json& json, Is<OpDifference> auto& op) {
  json.member("op", op.op, kText).member("runs", op.runs, kCount);
  json.member("stamped_us", op.stamped_us, kNumber).member("kernel_us", op.kernel_us, kNumber);
  json.member("own_us", op.own_us, kNumber).member("difference_us", op.difference_us, kNumber);
  json.member("own_difference_us", op.own_difference_us, kNumber);
}

/// Left out without a gap.
template <class Json>
void gaps_member(Json& json, std::string_view cause, Is<GapSum> auto& sum) {
  if (!json.has(cause, sum.gaps > 0)) return;
  json.object(cause,
              [&](auto& inner) { inner.member("gaps", sum.gaps, kCount).member("us", sum.us, kNumber); });
}

template <class Json>
void members(Json& json, Is<OpGaps> auto& op) {
  json.member("op", op.op, kText);
  gaps_member(json, "host", op.host);
  gaps_member(json, "device", op.device);
  gaps_member(json, "unknown", op.unknown);
}

template <class Json>
void members(Json& json, Is<RangeIdle> auto& idle) {
  gaps_member(json, "start", idle.start);
  gaps_member(json, "host", idle.host);
  gaps_member(json, "device", idle.device);
  gaps_member(json, "unknown", idle.unknown);
  json.list("ops", idle.ops);
}

template <class Json>
void members(Json& json, Is<Stranger> auto& stranger) {
  json.member("kernel", stranger.kernel, kText).member("unmatched", stranger.unmatched, kCount);
  json.member("outside", stranger.outside, kCount);
}

template <class Json>
void members(Json& json, Is<Attribution> auto& attribution) {
  json.member("steps", attribution.steps, kCount).member("step_us", attribution.step_us, kNumber);
  json.told("difference", attribution.difference(), 5);
  json.told("own_difference", attribution.own_difference(), 5).list("ops", attribution.ops);
}

/// The first rank is left out.
template <class Json>
void members(Json& json, Is<KernelLine> auto& kernel) {
  constexpr std::array kShownCauses{GapCause::start, GapCause::host, GapCause::device};
  json.member("step", kernel.step, kCount).optional("rank", kernel.rank, kSmall);
  json.member("kind", kernel.kind,
              one_name_of(ActivityKind::kernel, ActivityKind::memcpy, ActivityKind::memset));
  if (json.has("op", kernel.phase.has_value())) {
    json.member("op", kernel.op, kText).member("layer", kernel.layer, kSmallFrom<-1>);
    json.member("phase", kernel.phase, one_name_of(StepPhase::prefill, StepPhase::decode, StepPhase::mixed));
  }
  if (kernel.kind == ActivityKind::kernel) json.member("kernel", kernel.kernel, kText);
  json.optional("launch", kernel.launch, kSmall, -1);
  json.member("stream", kernel.stream, kSmall).member("graph", kernel.in_graph, kBoolean);
  json.member("start_ns", kernel.start_ns, kTime).member("us", kernel.us, kNumber);
  json.member("own_us", kernel.own_us, kNumber).member("gap_us", kernel.gap_us, kNumber);
  if (json.has("gap_cause", std::ranges::find(kShownCauses, kernel.gap_cause) != kShownCauses.end())) {
    json.member("gap_cause", kernel.gap_cause,
                one_name_of(GapCause::start, GapCause::host, GapCause::device));
  } else if constexpr (Json::kReads) {
    if (kernel.gap_us > 0.0) kernel.gap_cause = GapCause::unknown;
  }
  if (json.has("launch_delay_us", kernel.launch_delay_us >= 0.0))
    json.member("launch_delay_us", kernel.launch_delay_us, kNumber);
  if (json.has("bytes", kernel.kind != ActivityKind::kernel)) json.member("bytes", kernel.bytes, kBytes);
}

template <class Json>
void range_members(Json& json, Is<RangeLine> auto& range) {
  constexpr std::string_view kHostClock = "host", kLibraryClock = "library";
  json.optional("rank", range.rank, kSmall).member("first_step", range.first_step, kCount);
  json.member("last_step", range.last_step, kCountFrom<-1>).optional("error", range.error, kText);
  json.member("steps", range.steps, kCount).member("kernels", range.kernels, kCount);
  json.member("copies", range.copies, kCount).member("dropped", range.dropped, kCount);
  json.member("invalid", range.invalid, kCount).member("outside", range.outside, kCount);
  json.member("unmatched", range.unmatched, kCount).member("missing", range.missing, kCount);
  if (json.has("of_profiler", true)) json.member("of_profiler", range.of_profiler, kCount);
  if (json.has("strangers", true)) json.list("strangers", range.strangers);
  json.member("overhead_us", range.overhead_us, kNumber);
  std::string clock(range.own_clock ? kLibraryClock : kHostClock);
  json.member("clock", clock, kText);
  if constexpr (Json::kReads) range.own_clock = clock == kLibraryClock;
  json.member("busy_us", range.busy_us, kNumber).member("idle_us", range.idle_us, kNumber);
  json.member("host_wait_us", range.host_wait_us, kNumber);
  if (json.has("idle", true)) json.object("idle", [&](auto& inner) { members(inner, range.idle); });
  json.object("attribution", [&](auto& inner) { members(inner, range.attribution); });
}

template <class Json>
void step_members(Json& json, Is<StepKernels> auto& step) {
  json.optional("rank", step.rank, kSmall).member("step", step.step, kCount);
  json.member("kernels", step.kernels, kCount).member("unmatched", step.unmatched, kCount);
  json.member("missing", step.missing, kCount).member("busy_us", step.busy_us, kNumber);
  json.member("attributed_us", step.attributed_us, kNumber).member("idle_us", step.idle_us, kNumber);
  json.member("host_wait_us", step.host_wait_us, kNumber);
}

template <class Json>
void members(Json& json, Is<RangeLine> auto& range) {
  json.object("range", [&](auto& inner) { range_members(inner, range); });
}

template <class Json>
void members(Json& json, Is<StepKernels> auto& step) {
  json.object("traced_step", [&](auto& inner) { step_members(inner, step); });
}

template void append_line(std::string&, const KernelLine&);
template KernelLine line_of(const JsonField&);
template void append_line(std::string&, const RangeLine&);
template RangeLine line_of(const JsonField&);
template void append_line(std::string&, const StepKernels&);
template StepKernels line_of(const JsonField&);

}  // namespace minfer
