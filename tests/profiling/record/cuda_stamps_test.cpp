// Stamps that kernels of replayed graphs take themselves, against CUPTI's records of the same kernels.
//
// A stamp is taken when everything before its op has ended. So an op's time runs from the end of the kernel in
// front to the end of its own last kernel, including the gap between the two. CUPTI's kernels begin earlier: with
// programmatic launches a kernel is placed while the one in front still runs. The following must agree: the
// kernels that were launched; the times between the ends of kernels; the time of a whole step; and, for a kernel
// so long that the gap does not matter, its duration from the end of the kernel in front.
#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <gtest/gtest.h>

#include "kernels/cuda/device/devices.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_kernel_records.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/last_steps.h"

namespace minfer {
namespace {

using test::KernelRecord;

constexpr int32_t kSequences = 16;
constexpr size_t kSteps = 8;
constexpr double kLongKernelUs = 50.0;
/// Kernels that request data which no kernel before them writes, before they wait for these. Not those of experts, known only later.
constexpr std::array<std::string_view, 4> kReadAhead = {"strip_kernel<", "stream_product_kernel<",
                                                        "tile_stream_kernel<", "attention_decode_kernel<"};
constexpr int32_t kLeastOfCupti = 16;  ///< for kernels that use fewer

/// Splits the records of kernels into one list for each step.
std::vector<std::vector<KernelRecord>> split_steps(const std::vector<KernelRecord>& kernels) {
  std::vector<std::vector<KernelRecord>> steps;
  for (const KernelRecord& kernel : kernels) {
    if (kernel.name.find("step_inputs") != std::string::npos) steps.emplace_back();
    if (!steps.empty()) steps.back().push_back(kernel);
  }
  return steps;
}

/// For each op the index of its first kernel, by the launches counted for it.
std::vector<size_t> first_kernels(const StepStamps& stamps) {
  std::vector<size_t> firsts;
  size_t next = 0;
  for (const StepStamps::Stamp& stamp : stamps.ops) {
    firsts.push_back(next);
    next += static_cast<size_t>(stamp.num_launches);
  }
  return firsts;
}

/// Expects the table of launches to agree with CUPTI about a step's kernels.
void expect_launches(const StepStamps& stamps, const std::vector<KernelLaunch>& table,
                     const std::vector<KernelRecord>& kernels) {
  ASSERT_EQ(stamps.launches.size(), kernels.size());
  const bool has_early_starts = cuda_devices().front().major >= 9;
  for (size_t i = 0; i < kernels.size(); ++i) {
    ASSERT_GE(stamps.launches[i], 0) << kernels[i].launch.kernel;
    const KernelLaunch& noted = table.at(static_cast<size_t>(stamps.launches[i]));
    const KernelLaunch& seen = kernels[i].launch;
    SCOPED_TRACE(noted.path + ": " + noted.kernel);
    EXPECT_EQ(noted.kernel, seen.kernel);
    EXPECT_EQ(noted.grid, seen.grid);
    EXPECT_EQ(noted.block, seen.block);
    EXPECT_EQ(std::max(noted.registers, kLeastOfCupti), seen.registers);
    EXPECT_EQ(noted.static_shared_bytes, seen.static_shared_bytes);
    EXPECT_EQ(noted.dynamic_shared_bytes, seen.dynamic_shared_bytes);
    const bool reads_ahead = noted.kernel.find("ExpertSchedule<") == std::string::npos &&
                             std::ranges::any_of(kReadAhead, [&](std::string_view kernel) {
                               return noted.kernel.starts_with(kernel);
                             });
    EXPECT_EQ(noted.reads_ahead_bytes > 0, reads_ahead && has_early_starts);
    EXPECT_GT(noted.blocks_per_sm, 0);
    EXPECT_NE(noted.limiter, OccupancyLimiter::unknown) << "the driver knows another number of blocks";
  }
}

/// Time with at least one kernel running.
int64_t busy_ns(const std::vector<KernelRecord>& kernels) {
  int64_t busy = 0, end = 0;
  for (const KernelRecord& kernel : kernels) {
    busy += std::max<int64_t>(0, kernel.end_ns - std::max(kernel.begin_ns, end));
    end = std::max(end, kernel.end_ns);
  }
  return busy;
}

/// Microseconds of all measured steps together.
struct OpTimes {
  double stamped = 0.0;  ///< between stamps
  double ends = 0.0;     ///< between the ends of kernels
  double kernels = 0.0;  ///< sum of the kernels' durations, without overlap with the one in front
  double longest = 0.0;  ///< of a kernel
};

double us(int64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}

TEST(CudaStamps, AgreeWithCuptiWhileGraphsReplay) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  const auto recorder = test::KernelRecorder::open();
  if (recorder == nullptr) GTEST_SKIP() << "no CUPTI, or a profiler holds it";

  EngineOptions options;
  options.device = DeviceChoice::cuda;
  options.max_model_len = 256;
  options.max_num_seqs = kSequences;
  options.num_blocks = kSequences * 16;
  options.steps_ahead = 0;  // so that CUPTI sees all kernels of the measured steps, and no others
  Engine engine(open_model("synthetic:llama-3.2-1b:bf16"), options);
  for (int32_t i = 0; i < kSequences; ++i)
    engine.submit(test::greedy_request(std::to_string(i), {i + 1, i + 2, i + 3}, 200));
  // The prompts, a decoding step without a graph, one that is captured, and some that are replayed.
  for (int i = 0; i < 10; ++i)
    engine.step();
  recorder->start();
  for (size_t i = 0; i < kSteps; ++i)
    engine.step();
  const std::vector<StepRecord> records = test::last_steps(engine.recorder(), kSteps);
  const std::vector<std::vector<KernelRecord>> steps = split_steps(recorder->stop());
  ASSERT_EQ(records.size(), kSteps);
  ASSERT_EQ(steps.size(), kSteps);

  const std::vector<KernelLaunch> table = engine.launches()->from(0);
  std::map<std::string, OpTimes> ops;
  OpTimes all;
  double busy = 0.0;
  for (size_t i = 0; i < kSteps; ++i) {
    const StepStamps& stamps = records[i].stamps;
    const std::vector<KernelRecord>& kernels = steps[i];
    EXPECT_EQ(records[i].batch.graph_batch, kSequences);
    ASSERT_NO_FATAL_FAILURE(expect_launches(stamps, table, kernels)) << "step " << i;
    const std::vector<size_t> firsts = first_kernels(stamps);
    int64_t end_of_op_before = kernels.front().begin_ns;
    for (size_t k = 0; k < stamps.ops.size(); ++k) {
      const bool is_last = k + 1 == stamps.ops.size();
      const int64_t next_stamp = is_last ? stamps.end_ns : stamps.ops[k + 1].begin_ns;
      const size_t end = is_last ? kernels.size() : firsts[k + 1];
      OpTimes& op = ops[engine.ops()[static_cast<size_t>(stamps.ops[k].op)].name];
      op.stamped += us(next_stamp - stamps.ops[k].begin_ns);
      op.ends += us(kernels[end - 1].end_ns - end_of_op_before);
      end_of_op_before = kernels[end - 1].end_ns;
      for (size_t j = firsts[k]; j < end; ++j) {
        const int64_t begin_ns =
            j == 0 ? kernels[j].begin_ns : std::max(kernels[j].begin_ns, kernels[j - 1].end_ns);
        const double duration = us(std::max<int64_t>(0, kernels[j].end_ns - begin_ns));
        op.kernels += duration;
        op.longest = std::max(op.longest, duration);
      }
    }
    all.stamped += us(stamps.end_ns - stamps.ops.front().begin_ns);
    all.ends += us(kernels.back().end_ns - kernels.front().begin_ns);
    busy += us(busy_ns(kernels));
  }

  std::printf("a step: %.1f us by stamps, %.1f us by CUPTI, %.1f us of it with a kernel running\n",
              all.stamped / kSteps, all.ends / kSteps, busy / kSteps);
  std::printf("%-20s %10s %14s %10s\n", "op", "stamps us", "kernel ends us", "kernels us");
  double moved = 0.0;
  for (const auto& [name, op] : ops) {
    std::printf("%-20s %10.1f %14.1f %10.1f\n", name.c_str(), op.stamped / kSteps, op.ends / kSteps,
                op.kernels / kSteps);
    moved += std::abs(op.stamped - op.ends);
    if (op.longest > kLongKernelUs) {
      EXPECT_NEAR(op.kernels / op.stamped, 1.0, 0.05) << name;
    }
  }
  EXPECT_NEAR(all.stamped / all.ends, 1.0, 0.05);
  EXPECT_LT(moved / all.ends, 0.10) << "time that stamps give to another op than the kernels' ends";
  EXPECT_GT(ops.at("lm_head").longest, kLongKernelUs);
}

}  // namespace
}  // namespace minfer
