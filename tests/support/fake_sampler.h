#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/base/clock.h"
#include "profiling/counters/counter_collector.h"

namespace minfer::test {

inline constexpr double kBytesANanosecond = 2'000.0;

/// A device whose counters grow evenly, on the host's clock.
class FakeSampler final : public CounterSampler {
 public:
  std::string prepare(const CounterOptions& options) override {
    ++prepared;
    setup_ = {.interval_ns = options.interval_ns, .counters = {Counter::dram_read_bytes}, .left_out = {}};
    return prepare_error;
  }
  const CounterSetup& setup() const override { return setup_; }
  std::string begin_window() override {
    begin_ns_ = now_ns();
    begins_ns.push_back(begin_ns_);
    return std::ssize(begins_ns) > good_windows ? "the begin failed" : "";
  }
  std::string end_window() override {
    end_ns_ = now_ns();
    return {};
  }
  std::string drain(CounterSamples& out) override {
    out.counters = setup_.counters;
    for (int64_t at = begin_ns_; at + setup_.interval_ns <= end_ns_; at += setup_.interval_ns) {
      out.begin_ns.push_back(at);
      out.end_ns.push_back(at + setup_.interval_ns);
      out.values.push_back(kBytesANanosecond * static_cast<double>(setup_.interval_ns));
    }
    return {};
  }
  void close() noexcept override { ++closed; }

  std::string prepare_error;
  int64_t good_windows = 1'000'000;
  std::atomic<int> prepared{0};
  std::atomic<int> closed{0};
  std::vector<int64_t> begins_ns;  ///< read after the collector is gone

 private:
  CounterSetup setup_;
  int64_t begin_ns_ = 0;
  int64_t end_ns_ = 0;
};

/// The windows that the collector gave, from its thread.
class WindowList {
 public:
  CounterCollector::OnWindow sink() {
    return [this](const CounterWindow& window) {
      const std::lock_guard lock(mutex_);
      windows_.push_back(window);
    };
  }
  std::vector<CounterWindow> all() const {
    const std::lock_guard lock(mutex_);
    return windows_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<CounterWindow> windows_;
};

}  // namespace minfer::test
