#include "profiling/report/device/traced_breakdown.h"

#include <algorithm>
#include <string_view>

namespace minfer {
namespace {

constexpr std::string_view kCommunicationKernels = "nccl";  // as their names begin

struct ActiveSpan {
  double begin_ns = 0.0;
  double end_ns = 0.0;
};

double begin_of(const KernelLine& activity) {
  return static_cast<double>(activity.start_ns);
}

double end_of(const KernelLine& activity) {
  return begin_of(activity) + activity.us * 1e3;
}

double us_between(double begin_ns, double end_ns) {
  return std::max(0.0, end_ns - begin_ns) * 1e-3;
}

/// The part of the breakdown that an activity counts for; those in front of others first.
double StepBreakdown::*part_of(const KernelLine& activity) {
  switch (activity.kind) {
    case ActivityKind::memcpy:
      return &StepBreakdown::memcpy_us;
    case ActivityKind::memset:
      return &StepBreakdown::memset_us;
    case ActivityKind::kernel:
      break;
  }
  return activity.kernel.starts_with(kCommunicationKernels) ? &StepBreakdown::communication_us
                                                            : &StepBreakdown::kernel_us;
}

/// Time that the spans cover, each instant once.
double covered_us(std::vector<ActiveSpan>& spans) {
  std::ranges::sort(spans, {}, &ActiveSpan::begin_ns);
  double us = 0.0;
  double end_ns = spans.empty() ? 0.0 : spans.front().begin_ns;
  for (const ActiveSpan& span : spans) {
    us += us_between(std::max(span.begin_ns, end_ns), span.end_ns);
    end_ns = std::max(end_ns, span.end_ns);
  }
  return us;
}

/// Adds the active time; each instant counts for the first part that it may count for.
void add_active(StepBreakdown& parts, const StepWall& wall, std::span<const KernelLine> activities) {
  static constexpr std::array kOrder{&StepBreakdown::kernel_us, &StepBreakdown::memcpy_us,
                                     &StepBreakdown::memset_us, &StepBreakdown::communication_us};
  std::vector<ActiveSpan> spans;
  double before_us = 0.0;
  for (const auto part : kOrder) {
    const size_t count = spans.size();
    if (part == &StepBreakdown::kernel_us && wall.busy_until_ns > wall.start_ns)
      spans.push_back({wall.start_ns, std::min(wall.busy_until_ns, wall.end_ns)});
    for (const KernelLine& activity : activities) {
      if (part_of(activity) != part) continue;
      const ActiveSpan span{std::max(begin_of(activity), wall.start_ns),
                            std::min(end_of(activity), wall.end_ns)};
      if (span.begin_ns < span.end_ns) spans.push_back(span);
    }
    if (spans.size() == count) continue;
    const double us = covered_us(spans);
    parts.*part += us - before_us;
    before_us = us;
  }
}

/// Time before a step's first activity, in which nothing ran.
void add_head(StepBreakdown& parts, const StepWall& wall, double begin_ns, const KernelLine& first) {
  const double gap_us = us_between(begin_ns, begin_of(first));
  double left_us = gap_us;
  if (first.launch_delay_us >= 0.0) {
    const double launched_ns = begin_of(first) - first.launch_delay_us * 1e3;
    const double hosts_us = std::min(gap_us, us_between(begin_ns, launched_ns));
    const double launch_us = std::min(hosts_us, wall.launch_us);
    const double work_us = std::min(hosts_us - launch_us, wall.work_us);
    parts.launch_us += launch_us;
    parts.host_us += work_us;
    left_us -= launch_us + work_us;
  }
  parts.idle_us += std::max(0.0, left_us);
}

}  // namespace

StepBreakdown traced_breakdown(const StepWall& wall, std::span<const KernelLine> activities) {
  StepBreakdown parts;
  add_active(parts, wall, activities);
  double now_ns = std::clamp(wall.busy_until_ns, wall.start_ns, std::max(wall.start_ns, wall.end_ns));
  for (const KernelLine& activity : activities) {
    const double begin_ns = std::min(begin_of(activity), wall.end_ns);
    if (begin_ns > now_ns) {
      if (&activity == &activities.front() && begin_ns == begin_of(activity)) {
        add_head(parts, wall, now_ns, activity);
      } else {
        (activity.gap_cause == GapCause::host ? parts.launch_us : parts.idle_us) +=
            us_between(now_ns, begin_ns);
      }
    }
    now_ns = std::max(now_ns, std::min(end_of(activity), wall.end_ns));
  }
  parts.idle_us += us_between(now_ns, wall.end_ns);
  return parts;
}

void TracedBreakdownSum::add(const StepSummary& step) {
  const auto start_ns = static_cast<double>(step.start_ns);
  const StepWall wall{.start_ns = start_ns,
                      .end_ns = start_ns + step.wall_us * 1e3,
                      .launch_us = step.host_us[static_cast<size_t>(HostSpan::launch)],
                      .work_us = add_host_work(step)};
  if (!step.on_device) return;                                                // it has no kernels
  if (!recent_.empty() && step.step <= recent_.back().step) recent_.clear();  // numbers that begin again
  recent_.push_back({.step = step.step, .wall = wall, .phase = step.phase()});
  if (recent_.size() > Aggregator::kRecentSteps) recent_.pop_front();
}

TracedBreakdownSum::Recent* TracedBreakdownSum::find(int64_t step) {
  const auto found = std::ranges::lower_bound(recent_, step, {}, &Recent::step);
  return found == recent_.end() || found->step != step ? nullptr : &*found;
}

void TracedBreakdownSum::add(const StepKernels& kernels) {
  if (Recent* const step = find(kernels.step)) step->kernels = kernels.is_whole() ? kernels.kernels : -1;
}

void TracedBreakdownSum::add(const KernelLine& kernel) {
  if (open_.empty() || open_.front().step != kernel.step) {
    settle(result_);
    last_step_ = open_.empty() ? -2 : open_.front().step;
    last_end_ns_ = 0.0;
    for (const KernelLine& each : open_)
      last_end_ns_ = std::max(last_end_ns_, end_of(each));
    open_.clear();
    const Recent* const step = find(kernel.step);
    open_step_ = step == nullptr ? Recent{} : *step;
    if (kernel.step > 0 && last_step_ == kernel.step - 1) open_step_.wall.busy_until_ns = last_end_ns_;
  }
  open_.push_back(kernel);
}

void TracedBreakdownSum::settle(Result& result) const {
  if (open_step_.kernels < 0) return;
  if (std::ranges::count(open_, ActivityKind::kernel, &KernelLine::kind) != open_step_.kernels) return;
  ++result.steps;
  result.by_phase[static_cast<size_t>(open_step_.phase)].add(traced_breakdown(open_step_.wall, open_));
}

TracedBreakdownSum::Result TracedBreakdownSum::result() const {
  Result result = result_;
  settle(result);
  return result;
}

size_t TracedBreakdownSum::bytes() const {
  return recent_.size() * sizeof(Recent) + open_.capacity() * sizeof(KernelLine);
}

}  // namespace minfer
