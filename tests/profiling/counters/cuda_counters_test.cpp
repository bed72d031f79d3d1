// Measured bytes of an engine's ops while its graphs replay, against the counted bytes.
#include <chrono>
#include <cstdio>

#include <gtest/gtest.h>

#include "profiling/counters/counter_profile.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/last_steps.h"

namespace minfer {
namespace {

constexpr int32_t kCountedSequences = 16;
constexpr int kCounterWindows = 4;
constexpr size_t kStepsOfAWindow = 8;

TEST(CudaCounters, OpsOfReplayedGraphsReadWhatIsCounted) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  std::unique_ptr<Backend> owner = make_cuda_backend();
  Backend& backend = *owner;
  CounterSampler* sampler = backend.counters();
  ASSERT_NE(sampler, nullptr);
  const std::string refusal = sampler->prepare({.interval_ns = 1'000, .window_ns = 20'000'000});
  if (!refusal.empty()) GTEST_SKIP() << refusal;

  EngineOptions options;
  options.device = DeviceChoice::cuda;
  options.max_model_len = 256;
  options.max_num_seqs = kCountedSequences;
  options.num_blocks = kCountedSequences * 16;
  Engine engine(open_model("synthetic:llama-3.2-1b:bf16"), options, {}, std::move(owner));
  for (int32_t i = 0; i < kCountedSequences; ++i)
    engine.submit(test::greedy_request(std::to_string(i), {i + 1, i + 2, i + 3}, 200));
  for (int i = 0; i < 20; ++i)
    engine.step();

  CounterProfile profile(engine.ops());
  CounterWindow window;
  for (int i = 0; i < kCounterWindows; ++i) {
    const int64_t last_step = test::last_steps(engine.recorder(), 1).back().step;
    ASSERT_EQ(sampler->begin_window(), "");
    for (size_t step = 0; step < kStepsOfAWindow; ++step)
      engine.step();
    ASSERT_EQ(sampler->end_window(), "");
    engine.step();  // so that the window's last step has a record
    CounterSamples samples;
    ASSERT_EQ(sampler->drain(samples), "");
    window = profile.add(std::move(samples), engine.recorder().after(last_step), sampler->setup());
    std::printf(
        "window %d: %.1f ms, %lld samples, %lld lost, clock %s, shift %lld ns, %zu whole steps; start %.2f "
        "ms, "
        "stop %.2f, drain %.1f, attribution %.1f\n",
        i, window.us * 1e-3, static_cast<long long>(window.samples), static_cast<long long>(window.lost),
        std::string(name(window.clock)).c_str(), static_cast<long long>(window.clock_shift_ns),
        window.steps.size(), window.start_ms, window.stop_ms, window.drain_ms, window.attribution_ms);
    EXPECT_EQ(window.lost, 0);
    ASSERT_FALSE(window.steps.empty());
    for (const CounterStep& step : window.steps) {
      const double read =
          step.measured[Counter::dram_read_bytes] / static_cast<double>(step.counted_read_bytes);
      std::printf(
          "  step %lld: %.1f us, covered %.4f, %.1f MB read, %.4f of those counted; %.1f MB written, %.1f "
          "counted\n",
          static_cast<long long>(step.step), step.us, step.covered,
          step.measured[Counter::dram_read_bytes] * 1e-6, read,
          step.measured[Counter::dram_written_bytes] * 1e-6,
          static_cast<double>(step.counted_written_bytes) * 1e-6);
      EXPECT_NEAR(read, 1.0, 0.05);
    }
  }

  ASSERT_EQ(window.work.size(), 1u);
  EXPECT_EQ(window.work[0].graph_batch, kCountedSequences);
  EXPECT_GE(window.work[0].replays,
            kCounterWindows * static_cast<int64_t>(kStepsOfAWindow) - kCounterWindows);
  std::printf("%-18s %5s %9s %10s %9s %10s %8s %6s %6s %6s %6s %6s\n", "op", "calls", "us", "read MB", "+-",
              "counted", "GB/s", "sm", "tensor", "warps", "L2", "hit");
  for (const CounterOp& op : window.work[0].ops) {
    const CounterValues& values = op.measured;
    std::printf("%-18s %5d %9.1f %10.3f %9.3f %10.3f %8.0f %6.3f %6.3f %6.3f %6.3f %6.3f\n", op.op.c_str(),
                op.calls, op.us, values[Counter::dram_read_bytes] * 1e-6, op.read_error_bytes * 1e-6,
                op.counted_read_bytes * 1e-6, op.read_gbps(), values[Counter::sm_active],
                values[Counter::tensor_active], values[Counter::warps_active], values[Counter::l2_throughput],
                values[Counter::l2_hit]);
    // Half a gigabyte: neither the cache nor the bytes that a kernel loads before its stamp matter.
    if (op.op == "lm_head") {
      EXPECT_NEAR(values[Counter::dram_read_bytes] / op.counted_read_bytes, 1.0, 0.03);
    }
  }
}

}  // namespace
}  // namespace minfer
