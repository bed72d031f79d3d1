// Stamps that kernels of replayed graphs take themselves, against CUPTI's records of the same kernels.
//
// A stamp is taken when everything before its op has ended, so an op's time runs from the end of the kernel
// in front to the end of its own last kernel, and contains the gap between the two. CUPTI's kernels begin
// earlier: with programmatic launches a kernel is placed while the one in front still runs. So what must
// agree is: where each stamp falls; the times between the ends of kernels; the time of a whole step; and,
// where a kernel is so long that gap and overlap do not count, its duration.
#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_kernel_records.h"
#include "tests/support/engine/engine_run.h"

namespace minfer {
namespace {

using test::KernelRecord;

constexpr int32_t kSequences = 16;
constexpr size_t kSteps = 8;
constexpr double kLongKernelUs = 50.0;

/// What the name of an op's first kernel contains; null: the kernels of products, of many names.
const char* kernel_name_of(const OpInfo& info) {
  switch (info.kind) {
    case OpKind::embed:
      return "embed_kernel";
    case OpKind::rms_norm:
      return "rms_norm_kernel";
    case OpKind::rope_kv_write:
      return "rope_kv_write_kernel";
    case OpKind::attention:
      return "attention_";
    case OpKind::gather:
      return "gather_rows_kernel";
    case OpKind::sample:
      return "greedy_kernel";
    case OpKind::transfer:
      return info.name == "step_inputs" ? "step_inputs" : "step_results";
    default:
      return nullptr;
  }
}

bool is_kernel_of(const KernelRecord& kernel, const OpInfo& info) {
  const auto contains = [&](const char* part) { return kernel.name.find(part) != std::string::npos; };
  if (const char* part = kernel_name_of(info)) return contains(part);
  for (const char* part : {"embed_kernel", "norm", "rope", "attention", "gather", "step_"}) {
    if (contains(part)) return false;
  }
  return true;
}

/// The records of kernels, one list a step.
std::vector<std::vector<KernelRecord>> split_steps(const std::vector<KernelRecord>& kernels) {
  std::vector<std::vector<KernelRecord>> steps;
  for (const KernelRecord& kernel : kernels) {
    if (kernel.name.find("step_inputs") != std::string::npos) steps.emplace_back();
    if (!steps.empty()) steps.back().push_back(kernel);
  }
  return steps;
}

/// For each op its first kernel: the first that has not ended at the op's stamp. `lead_ns`: from the begin of
/// the step's first kernel, on CUPTI's clock, to its stamp. None if an op has no kernel of its own.
std::optional<std::vector<size_t>> first_kernels(const StepStamps& stamps, std::span<const OpInfo> ops,
                                                 const std::vector<KernelRecord>& kernels, int64_t lead_ns) {
  const int64_t shift_ns = kernels.front().begin_ns + lead_ns - stamps.ops.front().begin_ns;
  std::vector<size_t> firsts;
  size_t next = 0;
  for (const StepStamps::Stamp& stamp : stamps.ops) {
    while (next < kernels.size() && kernels[next].end_ns <= stamp.begin_ns + shift_ns)
      ++next;
    if (next == kernels.size() || !is_kernel_of(kernels[next], ops[static_cast<size_t>(stamp.op)])) return {};
    if (!firsts.empty() && firsts.back() == next) return {};
    firsts.push_back(next);
  }
  return firsts;
}

/// The same under one of the leads that a kernel's start can take.
std::optional<std::vector<size_t>> first_kernels(const StepStamps& stamps, std::span<const OpInfo> ops,
                                                 const std::vector<KernelRecord>& kernels) {
  constexpr int64_t kMostLeadNs = 4000, kStepNs = 100;
  for (int64_t lead_ns = 0; lead_ns <= kMostLeadNs; lead_ns += kStepNs) {
    if (auto firsts = first_kernels(stamps, ops, kernels, lead_ns)) return firsts;
  }
  return std::nullopt;
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
  double kernels = 0.0;  ///< sum of the kernels' durations
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
  options.steps_ahead = 0;  // CUPTI then sees all kernels of the measured steps, and no other
  Engine engine(open_model("synthetic:llama-3.2-1b:bf16"), options);
  for (int32_t i = 0; i < kSequences; ++i)
    engine.submit(test::greedy_request(std::to_string(i), {i + 1, i + 2, i + 3}, 200));
  // The prompts, a step of decoding without a graph, one that is captured, and some that are replayed.
  for (int i = 0; i < 10; ++i)
    engine.step();
  recorder->start();
  for (size_t i = 0; i < kSteps; ++i)
    engine.step();
  const std::vector<StepRecord> records = engine.recorder().last(kSteps);
  const std::vector<std::vector<KernelRecord>> steps = split_steps(recorder->stop());
  ASSERT_EQ(records.size(), kSteps);
  ASSERT_EQ(steps.size(), kSteps);

  std::map<std::string, OpTimes> ops;
  OpTimes all;
  double busy = 0.0;
  for (size_t i = 0; i < kSteps; ++i) {
    const StepStamps& stamps = records[i].stamps;
    const std::vector<KernelRecord>& kernels = steps[i];
    EXPECT_EQ(records[i].batch.graph_batch, kSequences);
    const auto firsts = first_kernels(stamps, engine.ops(), kernels);
    ASSERT_TRUE(firsts.has_value()) << "step " << i << ": " << stamps.ops.size() << " ops and "
                                    << kernels.size() << " kernels do not follow each other alike";
    int64_t end_of_op_before = kernels.front().begin_ns;
    for (size_t k = 0; k < stamps.ops.size(); ++k) {
      const bool is_last = k + 1 == stamps.ops.size();
      const int64_t next_stamp = is_last ? stamps.end_ns : stamps.ops[k + 1].begin_ns;
      const size_t end = is_last ? kernels.size() : (*firsts)[k + 1];
      OpTimes& op = ops[engine.ops()[static_cast<size_t>(stamps.ops[k].op)].name];
      op.stamped += us(next_stamp - stamps.ops[k].begin_ns);
      op.ends += us(kernels[end - 1].end_ns - end_of_op_before);
      end_of_op_before = kernels[end - 1].end_ns;
      for (size_t j = (*firsts)[k]; j < end; ++j) {
        op.kernels += us(kernels[j].end_ns - kernels[j].begin_ns);
        op.longest = std::max(op.longest, us(kernels[j].end_ns - kernels[j].begin_ns));
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
