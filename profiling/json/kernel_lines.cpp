#include <algorithm>
#include <array>

#include "profiling/json/line_members.h"

namespace minfer {

template <class Json>
void members(Json& json, Is<OpDifference> auto& op) {
  json.member("op", op.op).member("runs", op.runs);
  json.member("stamped_us", op.stamped_us).member("kernel_us", op.kernel_us);
  json.member("own_us", op.own_us).member("difference_us", op.difference_us);
  json.member("own_difference_us", op.own_difference_us);
}

/// Left out without a gap.
template <class Json>
void gaps_member(Json& json, std::string_view cause, Is<GapSum> auto& sum) {
  if (!json.has(cause, sum.gaps > 0)) return;
  json.object(cause, [&](auto& inner) { inner.member("gaps", sum.gaps).member("us", sum.us); });
}

template <class Json>
void members(Json& json, Is<OpGaps> auto& op) {
  json.member("op", op.op);
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
  json.member("kernel", stranger.kernel).member("unmatched", stranger.unmatched);
  json.member("outside", stranger.outside);
}

template <class Json>
void members(Json& json, Is<Attribution> auto& attribution) {
  json.member("steps", attribution.steps).member("step_us", attribution.step_us);
  json.told("difference", attribution.difference(), 5);
  json.told("own_difference", attribution.own_difference(), 5).list("ops", attribution.ops);
}

/// The first rank is left out.
template <class Json>
void members(Json& json, Is<KernelLine> auto& kernel) {
  constexpr std::array kShownCauses{GapCause::start, GapCause::host, GapCause::device};
  json.told("schema", kKernelSchema).member("step", kernel.step).optional("rank", kernel.rank);
  json.member("kind", kernel.kind, kNameTo<ActivityKind::memset>);
  if (json.has("op", kernel.phase.has_value())) {
    json.member("op", kernel.op).member("layer", kernel.layer, kSmallFrom<-1>);
    json.member("phase", kernel.phase, kStepPhase);
  }
  if (kernel.kind == ActivityKind::kernel) json.member("kernel", kernel.kernel);
  json.optional("launch", kernel.launch, kSmall, -1);
  json.member("stream", kernel.stream).member("graph", kernel.in_graph);
  json.member("start_ns", kernel.start_ns, kTime).member("us", kernel.us);
  json.member("own_us", kernel.own_us).member("gap_us", kernel.gap_us);
  if (json.has("gap_cause", std::ranges::find(kShownCauses, kernel.gap_cause) != kShownCauses.end())) {
    json.member("gap_cause", kernel.gap_cause,
                one_name_of(GapCause::start, GapCause::host, GapCause::device));
  } else if constexpr (Json::kReads) {
    if (kernel.gap_us > 0.0) kernel.gap_cause = GapCause::unknown;
  }
  json.optional("launch_delay_us", kernel.launch_delay_us, kNumber, -1.0);
  if (json.has("bytes", kernel.kind != ActivityKind::kernel)) json.member("bytes", kernel.bytes, kBytes);
}

template <class Json>
void range_members(Json& json, Is<RangeLine> auto& range) {
  constexpr std::string_view kHostClock = "host", kLibraryClock = "library";
  json.optional("rank", range.rank).member("first_step", range.first_step);
  json.member("last_step", range.last_step, kCountFrom<-1>).optional("error", range.error);
  json.member("steps", range.steps).member("kernels", range.kernels);
  json.member("copies", range.copies).member("dropped", range.dropped);
  json.member("invalid", range.invalid).member("outside", range.outside);
  json.member("unmatched", range.unmatched).member("missing", range.missing);
  if (json.has("of_profiler", true)) json.member("of_profiler", range.of_profiler);
  if (json.has("strangers", true)) json.list("strangers", range.strangers);
  json.member("overhead_us", range.overhead_us);
  std::string clock(range.own_clock ? kLibraryClock : kHostClock);
  json.member("clock", clock);
  if constexpr (Json::kReads) range.own_clock = clock == kLibraryClock;
  json.member("busy_us", range.busy_us).member("idle_us", range.idle_us);
  json.member("host_wait_us", range.host_wait_us);
  if (json.has("idle", true)) json.object("idle", [&](auto& inner) { members(inner, range.idle); });
  json.object("attribution", [&](auto& inner) { members(inner, range.attribution); });
}

template <class Json>
void step_members(Json& json, Is<StepKernels> auto& step) {
  json.optional("rank", step.rank).member("step", step.step);
  json.member("kernels", step.kernels).member("unmatched", step.unmatched);
  json.member("missing", step.missing).member("busy_us", step.busy_us);
  json.member("attributed_us", step.attributed_us).member("idle_us", step.idle_us);
  json.member("host_wait_us", step.host_wait_us);
}

template <class Json>
void members(Json& json, Is<RangeLine> auto& range) {
  json.told("schema", kKernelSchema).object("range", [&](auto& inner) { range_members(inner, range); });
}

template <class Json>
void members(Json& json, Is<StepKernels> auto& step) {
  json.told("schema", kKernelSchema).object("traced_step", [&](auto& inner) { step_members(inner, step); });
}

template struct JsonOf<KernelLine>;
template struct JsonOf<RangeLine>;
template struct JsonOf<StepKernels>;

}  // namespace minfer
