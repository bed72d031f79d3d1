// Hardware counters against copies of known size, inside graphs.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/current_device.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/capture.h"
#include "kernels/cuda/profiler/device_timer.h"
#include "kernels/cuda/profiler/pm_sampler.h"
#include "tests/support/cuda/cuda_counters.h"
#include "tests/support/cuda/cuda_device.h"

namespace minfer {
namespace {

using cuda::check;

constexpr size_t kCopyBytes = size_t{256} << 20;  // several times the size of the L2 cache
constexpr int kCopies = 4;

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

class CudaPmSampler : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }

  /// Prepares the sampler, or skips the test and says why.
  void prepare(const CounterOptions& options) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string error = sampler_->prepare(options);
    std::printf("prepare: %.1f ms\n", milliseconds_since(begin));
    if (test::are_counters_refused(error)) GTEST_SKIP() << error;
    ASSERT_EQ(error, "");
  }

  std::unique_ptr<CounterSampler> sampler_ = cuda::make_pm_sampler(0);
};

/// A graph of copies within the device.
class CopyGraph {
 public:
  CopyGraph()
      : from_(kCopyBytes * kCopies, "test data"),
        to_(kCopyBytes * kCopies, "test data"),
        stream_(cuda::make_stream()) {
    check(cudaMemsetAsync(from_.data(), 0x5a, from_.bytes(), stream_.get()), "filling");
    graph_ = cuda::replayable(stream_.get(), "capturing", [&] {
      for (size_t i = 0; i < kCopies; ++i) {
        check(cudaMemcpyAsync(to_.as<char>() + i * kCopyBytes, from_.as<char>() + i * kCopyBytes, kCopyBytes,
                              cudaMemcpyDeviceToDevice, stream_.get()),
              "copying");
      }
    });
    run(2);
  }

  /// Replays it `times` times. Returns milliseconds.
  double run(int times) {
    check(cudaEventRecord(begin_.get(), stream_.get()), "replaying");
    for (int i = 0; i < times; ++i)
      check(cudaGraphLaunch(graph_.get(), stream_.get()), "replaying");
    check(cudaEventRecord(end_.get(), stream_.get()), "replaying");
    check(cudaStreamSynchronize(stream_.get()), "replaying");
    float ms = 0.0f;
    check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "replaying");
    return static_cast<double>(ms);
  }

 private:
  cuda::DeviceBuffer from_;
  cuda::DeviceBuffer to_;
  cuda::Stream stream_;
  cuda::GraphExec graph_;
  cuda::Event begin_ = cuda::make_timing_event();
  cuda::Event end_ = cuda::make_timing_event();
};

double sum_of(const CounterSamples& samples, Counter counter) {
  const int column = samples.column(counter);
  double sum = 0.0;
  for (size_t i = 0; column >= 0 && i < samples.size(); ++i)
    sum += samples.value(i, static_cast<size_t>(column));
  return sum;
}

TEST_F(CudaPmSampler, CountsWhatReplayedGraphsMove) {
  constexpr int kReplays = 4;
  prepare({.interval_ns = 1'000, .window_ns = 30'000'000});
  if (IsSkipped() || HasFatalFailure()) return;
  for (const Counter counter : sampler_->setup().counters)
    std::printf("sampled: %s\n", std::string(name(counter)).c_str());
  for (const auto& [counter, reason] : sampler_->setup().left_out)
    std::printf("left out: %s: %s\n", std::string(name(counter)).c_str(), reason.c_str());

  CopyGraph graph;
  cuda::DeviceTimer timer;
  timer.now_ns();
  const double before_ms = graph.run(kReplays);
  ASSERT_EQ(sampler_->begin_window(), "");
  const int64_t begin_ns = timer.now_ns();
  const double sampled_ms = graph.run(kReplays);
  const int64_t end_ns = timer.now_ns();
  ASSERT_EQ(sampler_->end_window(), "");
  CounterSamples samples;
  const auto drain_begin = std::chrono::steady_clock::now();
  ASSERT_EQ(sampler_->drain(samples), "");
  const double drain_ms = milliseconds_since(drain_begin);
  const double after_ms = graph.run(kReplays);

  const double moved = static_cast<double>(kCopyBytes) * kCopies * kReplays;
  const double read = sum_of(samples, Counter::dram_read_bytes) / moved;
  const double written = sum_of(samples, Counter::dram_written_bytes) / moved;
  std::printf("%d replays: %.3f ms before the window, %.3f in it, %.3f behind it\n", kReplays, before_ms,
              sampled_ms, after_ms);
  std::printf(
      "%zu samples, %lld lost, clock %s; start %.2f ms, stop %.2f ms, drain %.1f ms, %.1f us a sample\n",
      samples.size(), static_cast<long long>(samples.lost), std::string(name(samples.clock)).c_str(),
      samples.start_ms, samples.stop_ms, drain_ms,
      samples.drain_ms * 1e3 / static_cast<double>(samples.size()));
  std::printf("of the bytes moved: %.4f read, %.4f written\n", read, written);
  EXPECT_EQ(samples.lost, 0);
  ASSERT_GE(samples.column(Counter::dram_read_bytes), 0);
  EXPECT_NEAR(read, 1.0, 0.01);
  if (samples.column(Counter::dram_written_bytes) >= 0) {
    EXPECT_NEAR(written, 1.0, 0.02);
  }

  // The copies' bytes fall into the time in which they ran.
  const auto reads = static_cast<size_t>(samples.column(Counter::dram_read_bytes));
  double inside = 0.0;
  int64_t first_ns = 0, last_ns = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_LT(samples.begin_ns[i], samples.end_ns[i]);
    if (samples.begin_ns[i] >= begin_ns && samples.end_ns[i] <= end_ns) inside += samples.value(i, reads);
    if (samples.value(i, reads) < 100'000.0) continue;
    if (first_ns == 0) first_ns = samples.begin_ns[i];
    last_ns = samples.end_ns[i];
  }
  std::printf(
      "first read %.1f us after the question before it, last one %.1f us before the question behind it\n",
      static_cast<double>(first_ns - begin_ns) * 1e-3, static_cast<double>(end_ns - last_ns) * 1e-3);
  EXPECT_NEAR(inside / moved, 1.0, 0.01);
}

TEST_F(CudaPmSampler, WindowsFollowEachOther) {
  prepare({.interval_ns = 2'000, .window_ns = 10'000'000, .evaluation_threads = 2});
  if (IsSkipped() || HasFatalFailure()) return;
  CopyGraph graph;
  CounterSamples samples;
  int64_t end_ns = 0;
  for (int window = 0; window < 5; ++window) {
    ASSERT_EQ(sampler_->begin_window(), "");
    graph.run(1);
    ASSERT_EQ(sampler_->end_window(), "");
    ASSERT_EQ(sampler_->drain(samples), "");
    const double moved = static_cast<double>(kCopyBytes) * kCopies;
    std::printf(
        "window %d: %zu samples, %lld lost, read %.4f, start %.2f ms, stop %.2f ms, %.1f us a sample\n",
        window, samples.size(), static_cast<long long>(samples.lost),
        sum_of(samples, Counter::dram_read_bytes) / moved, samples.start_ms, samples.stop_ms,
        samples.drain_ms * 1e3 / static_cast<double>(samples.size()));
    ASSERT_GT(samples.size(), 0u);
    EXPECT_NEAR(sum_of(samples, Counter::dram_read_bytes) / moved, 1.0, 0.01);
    EXPECT_GT(samples.begin_ns.front(), end_ns);
    end_ns = samples.end_ns.back();
  }
}

TEST_F(CudaPmSampler, CanBeClosedAndPreparedAgain) {
  prepare({});
  if (IsSkipped() || HasFatalFailure()) return;
  const auto begin = std::chrono::steady_clock::now();
  sampler_->close();
  std::printf("close: %.1f ms\n", milliseconds_since(begin));
  EXPECT_NE(sampler_->begin_window(), "");
  ASSERT_EQ(sampler_->prepare({.interval_ns = 4'000}), "");
  ASSERT_EQ(sampler_->begin_window(), "");
  cuda::DeviceTimer().now_ns();
  ASSERT_EQ(sampler_->end_window(), "");
  CounterSamples samples;
  ASSERT_EQ(sampler_->drain(samples), "");
  ASSERT_GT(samples.size(), 1u);
  // Another interval than before: a reconfigured sampler would have kept the first one.
  EXPECT_NEAR(static_cast<double>(samples.end_ns[1] - samples.begin_ns[1]), 4'000.0, 200.0);
}

/// Bytes that device 0 sends to device 1 while both are sampled, each device with its own piece of memory.
class SentBytes {
 public:
  SentBytes() : stream_(cuda::make_stream()), from_(kCopyBytes, "test data"), to_(on_second()) {
    const cudaError_t status = cudaDeviceEnablePeerAccess(1, 0);  // else the copy goes through the host
    if (status != cudaErrorPeerAccessAlreadyEnabled) check(status, "peer access");
    (void)cudaGetLastError();  // clears the error that peer access was enabled before
  }
  void send() const {
    check(cudaMemcpyPeerAsync(to_.data(), 1, from_.data(), 0, kCopyBytes, stream_.get()), "sending");
    check(cudaStreamSynchronize(stream_.get()), "sending");
  }

 private:
  static cuda::DeviceBuffer on_second() {
    const cuda::CurrentDevice second(1);
    return {kCopyBytes, "test data"};
  }
  cuda::Stream stream_;
  cuda::DeviceBuffer from_, to_;
};

TEST_F(CudaPmSampler, TwoDevicesAreSampledAtOnce) {
  if (cuda_devices().size() < 2) GTEST_SKIP() << "fewer than two CUDA devices";
  const CounterOptions options{.interval_ns = 2'000, .window_ns = 60'000'000};
  prepare(options);
  if (IsSkipped() || HasFatalFailure()) return;
  const std::unique_ptr<CounterSampler> second = cuda::make_pm_sampler(1);
  ASSERT_EQ(second->prepare(options), "");
  int device = -1;
  check(cudaGetDevice(&device), "asking for the device");
  EXPECT_EQ(device, 0) << "the caller's is what it was";

  const SentBytes bytes;
  bytes.send();
  CounterSamples of_first, of_second;
  ASSERT_EQ(sampler_->begin_window(), "");
  ASSERT_EQ(second->begin_window(), "");
  bytes.send();
  ASSERT_EQ(sampler_->end_window(), "");
  ASSERT_EQ(second->end_window(), "");
  ASSERT_EQ(sampler_->drain(of_first), "");
  ASSERT_EQ(second->drain(of_second), "");
  const auto share = [](const CounterSamples& samples, Counter counter) {
    return sum_of(samples, counter) / static_cast<double>(kCopyBytes);
  };
  for (const CounterSamples* samples : {&of_first, &of_second}) {
    std::printf("of the bytes sent: %.4f read, %.4f written, %.4f received, %.4f sent; %lld samples lost\n",
                share(*samples, Counter::dram_read_bytes), share(*samples, Counter::dram_written_bytes),
                share(*samples, Counter::nvlink_received_bytes), share(*samples, Counter::nvlink_sent_bytes),
                static_cast<long long>(samples->lost));
  }
  EXPECT_NEAR(share(of_first, Counter::dram_read_bytes), 1.0, 0.05);
  EXPECT_LT(share(of_second, Counter::dram_read_bytes), 0.1);
  EXPECT_NEAR(share(of_second, Counter::dram_written_bytes), 1.0, 0.25) << "some are still in the cache";

  sampler_->close();  // the other device keeps its counters
  ASSERT_EQ(second->begin_window(), "");
  bytes.send();
  ASSERT_EQ(second->end_window(), "");
  ASSERT_EQ(second->drain(of_second), "");
  EXPECT_GT(share(of_second, Counter::dram_written_bytes), 0.5);

  for (const auto& [counter, reason] : second->setup().left_out)
    std::printf("left out: %s: %s\n", std::string(name(counter)).c_str(), reason.c_str());
  if (of_second.column(Counter::nvlink_received_bytes) < 0) GTEST_SKIP() << "no counters of NVLink";
  EXPECT_GT(share(of_second, Counter::nvlink_received_bytes), 0.9);
  EXPECT_GT(share(of_first, Counter::nvlink_sent_bytes), 0.9);
}

TEST_F(CudaPmSampler, SaysWhatCannotBe) {
  CounterSamples samples;
  EXPECT_NE(sampler_->begin_window(), "");
  EXPECT_NE(sampler_->end_window(), "");
  EXPECT_NE(sampler_->drain(samples), "");
  EXPECT_NE(sampler_->prepare({.interval_ns = 1}), "");
  EXPECT_NE(sampler_->prepare({.interval_ns = 1'000, .window_ns = 10}), "");
}

}  // namespace
}  // namespace minfer
