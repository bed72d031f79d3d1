// Hardware counters of both GPUs while an engine of two ranks decodes: each GPU reads its share of the weights, and receives over NVLink
// the bytes that the other sends.
#include <algorithm>
#include <cstdio>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device/devices.h"
#include "profiling/counters/counter_collector.h"
#include "tests/support/cuda/cuda_counters.h"
#include "tests/support/engine/rank_run.h"
#include "tests/support/fake_sampler.h"
#include "tests/support/wait.h"

namespace minfer {
namespace {

constexpr int32_t kCountedRanks = 2;
constexpr int32_t kDecoding = 8;
constexpr int kStepsAtATime = 8;

void print(const CounterWindow& window) {
  std::printf("rank %d: %.1f ms, %lld samples, %lld lost, clock %s, shift %lld ns, %zu whole steps\n",
              window.rank, window.us * 1e-3, static_cast<long long>(window.samples),
              static_cast<long long>(window.lost), std::string(name(window.clock)).c_str(),
              static_cast<long long>(window.clock_shift_ns), window.steps.size());
  for (const auto& [counter, reason] : window.left_out)
    std::printf("  left out: %s: %s\n", std::string(name(counter)).c_str(), reason.c_str());
  for (const CounterStep& step : window.steps) {
    const CounterValues& values = step.measured;
    std::printf("  step %lld: %.1f us, read %.1f MB, counted %.1f; NVLink received %.3f MB, sent %.3f\n",
                static_cast<long long>(step.step), step.us, values[Counter::dram_read_bytes] * 1e-6,
                static_cast<double>(step.counted_read_bytes) * 1e-6,
                values[Counter::nvlink_received_bytes] * 1e-6, values[Counter::nvlink_sent_bytes] * 1e-6);
  }
}

TEST(CudaRankCounters, EachReadsItsWeightsAndNvlinkBringsTheOthers) {
  if (cuda_devices().size() < kCountedRanks) GTEST_SKIP() << "fewer than two CUDA devices";
  EngineOptions options = test::rank_options(DeviceChoice::cuda, kCountedRanks);
  options.max_num_seqs = kDecoding;
  options.num_blocks = 1024;
  Engine engine(open_model("synthetic:llama-3.2-1b:bf16"), options);
  const std::vector<RankCounters> ranks = engine.counters();
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[1].rank, 1);
  EXPECT_EQ(ranks[1].ops.size(), engine.ops().size());

  test::WindowList windows;
  CounterCollector collector(ranks, {}, windows.sink());
  if (!windows.all().empty() && test::are_counters_refused(windows.all()[0].error))
    GTEST_SKIP() << windows.all()[0].error;
  engine.recorder().add_sink(collector);
  engine.watch_rank_stamps(&collector);
  const auto num_with_steps = [&](int32_t rank) {
    return std::ranges::count_if(windows.all(), [&](const CounterWindow& window) {
      return window.rank == rank && !window.steps.empty();
    });
  };
  const auto has_error = [&] {
    return std::ranges::any_of(windows.all(),
                               [](const CounterWindow& window) { return !window.error.empty(); });
  };
  int requests = 0;
  EXPECT_TRUE(test::wait_until([&] {
    for (int i = 0; i < kStepsAtATime; ++i) {
      while (!engine.has_work() || requests % kDecoding != 0)
        engine.submit(test::greedy_request(std::to_string(requests++), {1, 2, 3}, 200));
      engine.step();
    }
    return has_error() || (num_with_steps(0) >= 3 && num_with_steps(1) >= 3);
  }));
  engine.watch_rank_stamps(nullptr);
  engine.recorder().remove_sink(collector);

  bool has_nvlink = false;
  int64_t decode_steps = 0;
  for (const CounterWindow& window : windows.all()) {
    ASSERT_EQ(window.error, "");
    print(window);
    EXPECT_EQ(window.lost, 0);
    for (const CounterStep& step : window.steps) {
      EXPECT_NEAR(step.measured[Counter::dram_read_bytes] / static_cast<double>(step.counted_read_bytes), 1.0,
                  0.1);
      decode_steps += window.rank;
      if (!step.measured.has(Counter::nvlink_received_bytes)) continue;
      has_nvlink = true;
      EXPECT_GT(step.measured[Counter::nvlink_received_bytes], 0.0);
      EXPECT_GT(step.measured[Counter::nvlink_sent_bytes], 0.0);
    }
  }
  EXPECT_GE(decode_steps, 3);
  if (!has_nvlink) GTEST_SKIP() << "no counters of NVLink: see what was left out";
}

}  // namespace
}  // namespace minfer
