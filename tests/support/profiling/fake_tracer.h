#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/device_trace.h"

namespace minfer::test {

/// A tracer that sees one kernel "step_kernel" in each step, and records the calls that it gets.
class FakeTracer final : public DeviceTracer {
 public:
  std::string error;  ///< the answer of start()
  std::function<void()> on_start_or_stop = nullptr;
  std::atomic<int> num_starts{0}, num_stops{0};
  std::vector<int64_t> steps;  ///< launched on the first device while it traced
  int64_t most_records = 0;    ///< as last requested

  std::string start(int64_t most) override {
    if (on_start_or_stop) on_start_or_stop();
    ++num_starts;
    most_records = most;
    records_ = {};
    records_.names = {"step_kernel"};
    records_.start = {.library_ns = now_ns(), .host_ns = now_ns()};
    return error;
  }
  void begin_launch(int64_t step, int32_t device) override {
    const std::lock_guard lock(mutex_);
    if (device == 0) steps.push_back(step);
    records_.windows.push_back({.step = step, .begin_ns = now_ns(), .device = device});
  }
  void end_launch(int32_t device) override {
    const std::lock_guard lock(mutex_);
    const auto correlation = static_cast<uint32_t>(records_.calls.size() + 1);
    TraceRecords::Window& window =
        *std::find_if(records_.windows.rbegin(), records_.windows.rend(),
                      [&](const TraceRecords::Window& each) { return each.device == device; });
    window.end_ns = now_ns();
    records_.calls.push_back(
        {.correlation = correlation, .begin_ns = window.begin_ns, .end_ns = window.end_ns});
    records_.call_steps.push_back({.correlation = correlation, .step = window.step});
    records_.activities.push_back({.correlation = correlation,
                                   .begin_ns = window.end_ns,
                                   .end_ns = window.end_ns + 100,
                                   .name = 0,
                                   .device = device});
  }
  bool is_full() const override {
    const std::lock_guard lock(mutex_);
    return std::ssize(records_.activities) >= most_records;
  }
  TraceRecords stop() override {
    if (on_start_or_stop) on_start_or_stop();
    ++num_stops;
    records_.stop = {.library_ns = now_ns(), .host_ns = now_ns()};
    return std::move(records_);
  }

 private:
  mutable std::mutex mutex_;  ///< each rank has a thread
  TraceRecords records_;
};

}  // namespace minfer::test
