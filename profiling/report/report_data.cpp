#include "profiling/report/report_data.h"

#include <algorithm>
#include <utility>

namespace minfer {
namespace {

/// True if `a` comes before `b` among the slowest.
bool is_slower(const StepSummary& a, const StepSummary& b) {
  return a.wall_us != b.wall_us ? a.wall_us > b.wall_us : a.step < b.step;
}

}  // namespace

void SlowestSteps::add(const StepSummary& step) {
  if (heap_.size() == count_) {
    if (count_ == 0 || !is_slower(step, heap_.front())) return;
    std::ranges::pop_heap(heap_, is_slower);
    heap_.back() = step;
  } else {
    heap_.push_back(step);
  }
  std::ranges::push_heap(heap_, is_slower);
}

std::vector<StepSummary> SlowestSteps::steps() const {
  std::vector<StepSummary> sorted = heap_;
  std::ranges::sort(sorted, is_slower);
  return sorted;
}

void ReportSums::header(ProfileHeader header) {
  data_.read_ahead = ReadAheadSum(header.ops);
  data_.views = ViewSums(header.ops);
  for (const OpInfo& op : header.ops) {
    if (op.kind == OpKind::transfer) transfers_.push_back(op.name);
  }
  ranks_.set_header(header);
  evidence_.header(header);
  data_.header = std::move(header);
}

void ReportSums::traced_step(const StepKernels& step) {
  if (step.rank != 0) return;  // the sums are of the first rank's steps
  evidence_.traced_step(step);
  sums_.add(step);
  traced_breakdown_.add(step);
}

void ReportSums::add(const StepSummary& step) {
  if (data_.recorded == 0) data_.first_step = step.step;
  data_.last_step = step.step;
  ++data_.recorded;
  sums_.set_dropped(step.dropped);
  evidence_.add(step);
  if (data_.header.asked.counters) window_cost_.add(step);
  if (!data_.filter.takes(step)) return;
  sums_.add(step);
  data_.read_ahead.add(step, data_.launches);
  data_.breakdown[static_cast<size_t>(step.phase())].add(breakdown_of(step, transfers_));
  traced_breakdown_.add(step);
  data_.views.add(step);
  slowest_.add(step);
  outliers_.add(step);
}

void ReportSums::kernel(KernelLine kernel) {
  if (kernel.rank != 0) return;
  evidence_.kernel(kernel);
  traced_breakdown_.add(kernel);
  data_.launch_queue.add(kernel);
  if (sums_.is_recent(kernel.step)) data_.views.add(kernel);
}

void ReportSums::counters(CounterWindow window) {
  if (window.rank != 0) return add_window(data_.rank_counters[window.rank], window);
  evidence_.counters(window);
  add_window(data_.counters, window);
  window_cost_.add(window);
}

ReportData ReportSums::finish(std::string note) {
  data_.note = std::move(note);
  data_.sum = sums_.result();
  sort_work(data_.counters);
  for (auto& [rank, counters] : data_.rank_counters)
    sort_work(counters);
  data_.window_cost = window_cost_.result();
  data_.traced_breakdown = traced_breakdown_.result();
  data_.slowest = slowest_.steps();
  data_.outliers = outliers_.result();
  data_.ranks = ranks_.result();
  if (data_.filter.is_all()) {
    data_.drafts = evidence_.drafts.uses();
    data_.diagnosis = diagnose(evidence_);
  }
  return std::move(data_);
}

}  // namespace minfer
