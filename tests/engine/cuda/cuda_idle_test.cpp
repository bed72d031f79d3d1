// Idle time of a GPU inside a step: planted delays between two launches, on the host and on the device, are found and charged to
// their cause.
#include <chrono>

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/owners.h"
#include "profiling/record/device_idle.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_kernel_records.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/last_steps.h"

namespace minfer {
namespace {

using cuda::check;

/// A delay in front of the first rotation of queries and keys.
struct PlantedDelay {
  int64_t host_us = 0;      ///< the host waits for the device, then for this long
  size_t device_bytes = 0;  ///< the device fills this many bytes, outside any op
  bool stamp_ends = true;   ///< the step's ends are stamped
};

/// The CUDA backend with a delay in the next step.
class DelayedBackend final : public cuda::CudaBackend {
 public:
  DelayedBackend() : CudaBackend({.use_graphs = false}) {}

  void plant(const PlantedDelay& delay) {
    delay_ = delay;
    is_planted_ = true;
    if (delay.device_bytes > filled_.bytes()) filled_ = cuda::DeviceBuffer(delay.device_bytes, "filled");
  }
  /// The time of the fill.
  double filled_us() const {
    float ms = 0.0f;
    check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "fill");
    return 1e3 * static_cast<double>(ms);
  }

  OpId delayed_op() const { return delayed_op_; }

  void name_ops(std::span<const OpInfo> ops) override {
    CudaBackend::name_ops(ops);
    const auto found = std::ranges::find(ops, std::string("rope_kv_write"), &OpInfo::name);
    delayed_op_ = static_cast<OpId>(found - ops.begin());
  }
  LaunchedStep launch_step(const StepArgs& step, const ForwardPass& forward) override {
    StepArgs closely = step;
    closely.stamp_ends = is_planted_ && delay_.stamp_ends;
    const LaunchedStep launched = CudaBackend::launch_step(closely, forward);
    is_planted_ = false;
    return launched;
  }
  void rope_kv_write(OpId op, const ForwardBatch& batch, const RopeKvWriteArgs& args) override {
    if (is_planted_ && op == delayed_op_) delay();
    CudaBackend::rope_kv_write(op, batch, args);
  }

 private:
  void delay() {
    if (delay_.host_us > 0) {
      while (cudaStreamQuery(stream()) == cudaErrorNotReady) {
      }
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(delay_.host_us);
      while (std::chrono::steady_clock::now() < end) {
      }
    }
    if (delay_.device_bytes > 0) {
      check(cudaEventRecord(begin_.get(), stream()), "fill");
      check(cudaMemsetAsync(filled_.data(), 0, delay_.device_bytes, stream()), "fill");
      check(cudaEventRecord(end_.get(), stream()), "fill");
    }
  }

  PlantedDelay delay_;
  bool is_planted_ = false;
  OpId delayed_op_ = -1;
  cuda::DeviceBuffer filled_;
  cuda::Event begin_ = cuda::make_timing_event();
  cuda::Event end_ = cuda::make_timing_event();
};

class CudaIdle : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
    EngineOptions options;
    options.device = DeviceChoice::cuda;
    options.max_model_len = 1024;
    options.max_num_seqs = 4;
    options.num_blocks = 256;
    options.steps_ahead = 0;
    auto backend = std::make_unique<DelayedBackend>();
    backend_ = backend.get();
    engine_ = std::make_unique<Engine>(open_model("synthetic:llama-3.2-1b:bf16"), options, nullptr,
                                       std::move(backend));
    engine_->submit(test::greedy_request("a", {1, 2, 3}, 900));
    for (int i = 0; i < 40; ++i)  // includes a step that is stamped closely
      find();
  }
  /// The op in front of the delay.
  struct Found {
    BusyOp op;
    IdleSource source = IdleSource::none;
    size_t first_kernel = 0;           ///< first kernel of the op behind it, among the step's kernels
    bool is_taken_up_at_once = false;  ///< that launch, as far as this machine can
  };
  /// Looks for it in the next step.
  Found find() {
    engine_->step();
    const StepStamps stamps = test::last_steps(engine_->recorder(), 1).at(0).stamps;
    const int64_t take_up_ns = idle_.take_up_ns();
    const std::span<const BusyOp> ops = idle_.find(stamps);
    Found found;
    found.source = idle_.source();
    size_t i = 0;
    for (; stamps.ops[i].op != backend_->delayed_op(); ++i) {
      found.op = ops[i];
      found.first_kernel += static_cast<size_t>(stamps.ops[i].num_launches);
    }
    found.is_taken_up_at_once = stamps.ops[i].begin_ns - stamps.ops[i].launched_ns <= take_up_ns;
    return found;
  }

  DelayedBackend* backend_ = nullptr;
  std::unique_ptr<Engine> engine_;
  IdleFinder idle_;
};

/// The time without a kernel before the kernel `index`, by CUPTI.
double gap_us(const std::vector<test::KernelRecord>& kernels, size_t index) {
  int64_t end = 0;
  for (size_t i = 0; i < index; ++i)
    end = std::max(end, kernels[i].end_ns);
  return us_of(kernels.at(index).begin_ns - end);
}

TEST_F(CudaIdle, ADelayOfTheHostIsFoundAndChargedToIt) {
  const auto recorder = test::KernelRecorder::open();
  if (recorder == nullptr) GTEST_SKIP() << "no CUPTI, or a profiler holds it";
  constexpr int kMostTries = 20;
  constexpr double kClocksUs =
      5.0;  // CUPTI's ends of kernels and the stamps of their blocks differ by up to this
  for (const bool stamp_ends : {true, false}) {
    const double usual_us = us_of(find().op.busy_ns);
    for (const int64_t delay_us : {50, 200, 1000}) {
      SCOPED_TRACE(fmt::format("{} us, {}", delay_us, stamp_ends ? "looked at closely" : "as any step"));
      Found found;
      double seen_us = 0.0;
      // On a busy machine some launches are held up on their way; such a launch cannot be told from a slow op in front of it.
      for (int i = 0; i < kMostTries && !found.is_taken_up_at_once; ++i) {
        backend_->plant({.host_us = delay_us, .stamp_ends = stamp_ends});
        recorder->start();
        found = find();
        seen_us = gap_us(recorder->stop(), found.first_kernel);
      }
      ASSERT_TRUE(found.is_taken_up_at_once) << "not once in " << kMostTries << " tries";
      const double host_us = us_of(found.op.idle_host_ns), device_us = us_of(found.op.idle_device_ns);
      std::printf(
          "%ld us: CUPTI %.1f, found %.1f of the host and %.1f of the device; op %.1f, usually %.1f\n",
          static_cast<long>(delay_us), seen_us, host_us, device_us, us_of(found.op.busy_ns), usual_us);
      EXPECT_EQ(found.source, stamp_ends ? IdleSource::end_stamps : IdleSource::launch_times);
      EXPECT_GE(seen_us, static_cast<double>(delay_us));
      const double slack_us = 0.1 * seen_us + kClocksUs;
      EXPECT_NEAR(host_us, seen_us, slack_us);
      EXPECT_LT(device_us, slack_us);
      EXPECT_LT(us_of(found.op.busy_ns), usual_us + slack_us);
    }
  }
}

TEST_F(CudaIdle, WorkOfTheDeviceThatIsNoOpIsChargedToTheDevice) {
  const double usual_us = us_of(find().op.busy_ns);
  Found found;
  for (int i = 0; i < 2; ++i) {  // the first fill of that memory takes longer
    backend_->plant({.device_bytes = size_t{1} << 30});
    found = find();
  }
  const double filled_us = backend_->filled_us();
  const double host_us = us_of(found.op.idle_host_ns), device_us = us_of(found.op.idle_device_ns);
  std::printf("fill %.1f us: found %.1f of the device and %.1f of the host\n", filled_us, device_us, host_us);
  EXPECT_GT(filled_us, 100.0);
  EXPECT_NEAR(device_us, filled_us, 0.1 * filled_us);
  EXPECT_LT(us_of(found.op.busy_ns), usual_us + 0.1 * filled_us);
}

}  // namespace
}  // namespace minfer
