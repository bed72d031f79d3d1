#include <algorithm>

#include "kernels/bench/kernel_operands.h"

namespace minfer {
namespace {

constexpr double kStepUs = 10'000.0;  ///< length of a measured step, within the limits on its runs
constexpr int64_t kLeastRuns = 3;
/// A sampling step draws once, so a case takes more steps.
constexpr int32_t kSamplingSteps = 5;

/// The ops of a measured step.
enum BenchOp : OpId { kInputs, kNorm, kFlush, kMeasured, kResults };

/// Runs the steps of one case.
class CaseTimer {
 public:
  CaseTimer(KernelOperands& operands, const KernelCase& c)
      : operands_(operands), case_(c), batch_(operands.host_batch(c)), rows_(operands.sampling_rows(c)) {}

  std::vector<double> measure(int32_t repetitions) {
    const bool is_sample = case_.info.kind == OpKind::sample;
    const double estimate_us = run_step(is_sample ? 1 : 2, false).back();  // this also makes the first calls
    const auto wanted = static_cast<int64_t>(kStepUs / std::max(estimate_us, 1.0));
    const int64_t runs = is_sample ? 1 : std::clamp(wanted, kLeastRuns, KernelOperands::kMostCopies);
    std::vector<double> samples_us;
    for (int32_t i = 0; i < repetitions * (is_sample ? kSamplingSteps : 1); ++i) {
      const std::vector<double> step_us = run_step(runs, true);
      // The first run of a step follows another op.
      samples_us.insert(samples_us.end(), step_us.begin() + (is_sample ? 0 : 1), step_us.end());
    }
    return samples_us;
  }

  std::string count(OpCounters& out) {
    RangeCounters* const counters = operands_.backend().range_counters();
    if (counters == nullptr) return "counters of ops: this backend has none: they are of NVIDIA GPUs";
    const StepArgs step{
        .batch = batch_, .rows = rows_, .inputs_op = kInputs, .sample_op = kMeasured, .results_op = kResults};
    return counters->measure(
        [&] {
          operands_.backend().launch_step(step, [&](const ForwardBatch& batch) {
            operands_.run_norm(kNorm);
            if (!operands_.exceed_cache(case_)) operands_.flush_cache(kFlush);
            counters->begin_range();
            Tensor out_tensor = operands_.run(case_, batch, kMeasured);
            counters->end_range();
            return out_tensor;
          });
          operands_.backend().finish_step(sampled_);
        },
        out);
  }

 private:
  /// Returns the times of the runs of one step.
  std::vector<double> run_step(int64_t runs, bool capture) {
    StepStamps stamps;
    sampled_.resize(rows_.size());
    Backend& backend = operands_.backend();
    const StepArgs step{.batch = batch_,
                        .rows = rows_,
                        .inputs_op = kInputs,
                        .sample_op = kMeasured,
                        .results_op = kResults,
                        .stamps = &stamps,
                        .capture = capture};
    backend.launch_step(step, [&](const ForwardBatch& batch) {
      operands_.run_norm(kNorm);
      if (!operands_.exceed_cache(case_)) operands_.flush_cache(kFlush);
      Tensor logits;
      for (int64_t run = 0; run < runs; ++run)
        logits = operands_.run(case_, batch, kMeasured);
      return logits;
    });
    backend.finish_step(sampled_);
    std::vector<double> times_us;
    for (size_t i = 0; i < stamps.ops.size(); ++i) {
      const int64_t end_ns = i + 1 < stamps.ops.size() ? stamps.ops[i + 1].begin_ns : stamps.end_ns;
      if (stamps.ops[i].op == kMeasured)
        times_us.push_back(static_cast<double>(end_ns - stamps.ops[i].begin_ns) * 1e-3);
    }
    return times_us;
  }

  KernelOperands& operands_;
  const KernelCase& case_;
  ForwardBatch batch_;
  std::span<const SamplingRow> rows_;
  std::vector<SampledToken> sampled_;
};

}  // namespace

std::vector<double> measure_kernel_us(KernelOperands& operands, const KernelCase& c, int32_t repetitions) {
  return CaseTimer(operands, c).measure(repetitions);
}

std::string count_kernel(KernelOperands& operands, const KernelCase& c, OpCounters& out) {
  return CaseTimer(operands, c).count(out);
}

}  // namespace minfer
