#include "profiling/chrome_trace/host_timeline.h"

#include <algorithm>
#include <array>

#include "profiling/chrome_trace/op_timeline.h"

namespace minfer {
namespace {

constexpr std::array kLaunchParts{HostSpan::draft, HostSpan::schedule, HostSpan::build, HostSpan::launch};
constexpr std::array kFinishParts{HostSpan::wait, HostSpan::commit, HostSpan::mask, HostSpan::detokenise,
                                  HostSpan::respond};

/// The longest gap between the parts of a launch.
constexpr int64_t kBetweenPartsNs = 100'000;

int64_t part_ns(const std::array<double, kHostSpans>& host_us, HostSpan part) {
  return ns_of(host_us[static_cast<size_t>(part)]);
}

}  // namespace

std::string_view name(HostBegin begin) {
  static constexpr std::array<std::string_view, 3> kNames{"record", "kernels", "order"};
  return kNames[static_cast<size_t>(begin)];
}

void HostTimeline::add(const StepSummary& step, std::optional<int64_t> launched_ns, const Visit& visit) {
  const TimeSpan span = span_of(step);
  // If the device went on to a step from the one before, the recorder lets the step begin where that one ended.
  const bool is_queued = open_ && open_->on_device && step.on_device && open_->end_ns == span.begin_ns;
  if (!is_queued) finish(visit);
  place_launch(step, is_queued, launched_ns, visit);
  finish(visit);
  open_ = {step.step, span.end_ns, step.on_device, step.host_us};
  if (!step.on_device) finish(visit);
}

void HostTimeline::place_launch(const StepSummary& step, bool is_queued, std::optional<int64_t> launched_ns,
                                const Visit& visit) {
  int64_t duration_ns = 0;
  for (const HostSpan part : kLaunchParts)
    duration_ns = later_ns(duration_ns, part_ns(step.host_us, part));
  Launch launch{step.step, {}, is_queued ? HostBegin::order : HostBegin::record};
  const int64_t start_ns = span_of(step).begin_ns;
  int64_t begin_ns = is_queued ? now_ns_ : start_ns;
  // A step whose kernels were launched before it began was queued, too.
  if (launched_ns && (is_queued || *launched_ns < start_ns)) {
    begin_ns = *launched_ns - duration_ns;
    launch.begin = HostBegin::kernels;
  }
  if (begin_ns < now_ns_) {
    begin_ns = now_ns_;
    launch.begin = HostBegin::order;
  }
  now_ns_ = later_ns(begin_ns, duration_ns);
  // Between the parts lies time that none of them has.
  if (launched_ns) now_ns_ = std::max(now_ns_, std::min(*launched_ns, later_ns(now_ns_, kBetweenPartsNs)));
  launch.span = {begin_ns, now_ns_};
  visit.launch(launch);
  for (const HostSpan part : kLaunchParts) {
    const TimeSpan span{begin_ns, later_ns(begin_ns, part_ns(step.host_us, part))};
    visit.part({step.step, part, span});
    begin_ns = span.end_ns;
  }
}

/// The host waits until the device has ended the step.
void HostTimeline::finish(const Visit& visit) {
  if (!open_) return;
  int64_t begin_ns = now_ns_;
  if (open_->on_device) {
    begin_ns = std::max(begin_ns, open_->end_ns - part_ns(open_->host_us, HostSpan::wait));
  } else {
    // The time of the CPU's ops is between launch and wait.
    int64_t duration_ns = 0;
    for (const HostSpan part : kFinishParts)
      duration_ns = later_ns(duration_ns, part_ns(open_->host_us, part));
    begin_ns = std::max(begin_ns, open_->end_ns - duration_ns);
  }
  for (const HostSpan part : kFinishParts) {
    const TimeSpan span{begin_ns, later_ns(begin_ns, part_ns(open_->host_us, part))};
    visit.part({open_->step, part, span});
    begin_ns = span.end_ns;
  }
  now_ns_ = begin_ns;
  open_.reset();
}

}  // namespace minfer
