#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "kernels/device_trace.h"
#include "kernels/stamps.h"

namespace minfer::test {

/// A tracer that sees one kernel "step_kernel" in each step, and writes down what it is asked.
class FakeTracer final : public DeviceTracer {
 public:
  std::string error;  ///< what start() answers
  std::function<void()> on_start_or_stop = nullptr;
  std::atomic<int> num_starts{0}, num_stops{0};
  std::vector<int64_t> steps;  ///< launched while it traced
  int64_t most_records = 0;    ///< as last asked for

  std::string start(int64_t most) override {
    if (on_start_or_stop) on_start_or_stop();
    ++num_starts;
    most_records = most;
    records_ = {};
    records_.names = {"step_kernel"};
    records_.start = {.library_ns = now_ns(), .host_ns = now_ns()};
    return error;
  }
  void begin_launch(int64_t step) override {
    steps.push_back(step);
    records_.windows.push_back({.step = step, .begin_ns = now_ns()});
  }
  void end_launch() override {
    const auto correlation = static_cast<uint32_t>(records_.calls.size() + 1);
    TraceRecords::Window& window = records_.windows.back();
    window.end_ns = now_ns();
    records_.calls.push_back(
        {.correlation = correlation, .begin_ns = window.begin_ns, .end_ns = window.end_ns});
    records_.call_steps.push_back({.correlation = correlation, .step = window.step});
    records_.activities.push_back(
        {.correlation = correlation, .begin_ns = window.end_ns, .end_ns = window.end_ns + 100, .name = 0});
  }
  bool is_full() const override { return std::ssize(records_.activities) >= most_records; }
  TraceRecords stop() override {
    if (on_start_or_stop) on_start_or_stop();
    ++num_stops;
    records_.stop = {.library_ns = now_ns(), .host_ns = now_ns()};
    return std::move(records_);
  }

 private:
  TraceRecords records_;
};

}  // namespace minfer::test
