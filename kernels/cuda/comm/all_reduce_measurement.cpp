#include "kernels/cuda/comm/all_reduce_measurement.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/cuda/comm/rank_ops.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/capture.h"

namespace minfer::cuda {
namespace {

constexpr int64_t kFirstBytes = int64_t{8} << 10;
constexpr int kRuns = 20;

/// The operands of the measured all-reduces. All zeros, so that sums do not change.
class Operands {
 public:
  Operands(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {
    for (DeviceBuffer* buffer : {&part_, &x_, &normed_, &norm_}) {
      const int64_t elements = buffer == &norm_ ? cols : rows * cols;
      const size_t element_bytes = buffer == &x_ || buffer == &norm_ ? sizeof(float) : 2;
      *buffer = DeviceBuffer::zeros(static_cast<size_t>(elements) * element_bytes, "measuring all-reduces");
    }
  }
  int64_t rows() const { return rows_; }
  AllReduceArgs args(int64_t rows) const {
    const auto tensor = [&](const DeviceBuffer& buffer, DType dtype) {
      return Tensor{buffer.data(), dtype, rows, cols_, cols_};
    };
    return {.part = tensor(part_, DType::bf16),
            .x = tensor(x_, DType::f32),
            .add_to_x = true,
            .norm = {.data = norm_.data(), .dtype = DType::f32, .count = 1, .rows = 1, .cols = cols_},
            .norm_eps = 1e-5f,
            .normed = tensor(normed_, DType::bf16)};
  }

 private:
  int64_t rows_, cols_;
  DeviceBuffer part_, x_, normed_, norm_;
};

GraphExec captured_runs(RankOps& ops, const AllReduceArgs& args, cudaStream_t stream, int32_t num_sms) {
  return replayable(stream, "measuring all-reduces", [&] {
    for (int run = 0; run < kRuns; ++run) {
      Launch launch(stream, num_sms);
      ops.all_reduce(launch, args);
    }
  });
}

/// Runs in a graph, as most all-reduces will, so that the time excludes launches.
float measure_us(RankOps& ops, AllReducePath path, const AllReduceArgs& args, cudaStream_t stream,
                 int32_t num_sms) {
  ops.force(path);
  Launch first(stream, num_sms);
  ops.all_reduce(first, args);  // the set-up of a first call cannot be captured
  ops.wait(stream, "measuring all-reduces");
  const GraphExec runs = captured_runs(ops, args, stream, num_sms);
  const Event begin = make_timing_event(), end = make_timing_event();
  ops.meet();
  for (int replay = 0; replay < 2; ++replay) {
    check(cudaEventRecord(begin.get(), stream), "measuring all-reduces");
    check(cudaGraphLaunch(runs.get(), stream), "measuring all-reduces");
  }
  check(cudaEventRecord(end.get(), stream), "measuring all-reduces");
  ops.wait(end.get(), "measuring all-reduces");
  ops.force(std::nullopt);
  float ms = 0.0f;
  check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "measuring all-reduces");
  ops.meet();
  return ms * 1e3f / kRuns;
}

std::string text_of(float us) {
  return us > 0.0f ? fmt::format("{:.1f}", us) : "-";
}

}  // namespace

AllReduceTable measure_all_reduce(RankOps& ops, Rank rank, cudaStream_t stream, int32_t num_sms,
                                  const StepLimits& limits) {
  constexpr int64_t kElementBytes = 2;
  const int64_t row_bytes = limits.hidden_size * kElementBytes;
  AllReduceTable table;
  const auto rows_of_size = [&](int32_t i) {
    return std::max<int64_t>(1, (kFirstBytes << 2 * i) / row_bytes);
  };
  while (table.count < AllReduceTable::kMostSizes &&
         (table.count == 0 || rows_of_size(table.count) <= limits.max_tokens))
    ++table.count;
  const Operands operands(rows_of_size(table.count - 1), limits.hidden_size);
  ops.meet();
  for (int32_t i = 0; i < table.count; ++i) {
    const AllReduceArgs args = operands.args(rows_of_size(i));
    const auto us = [&](AllReducePath path) { return measure_us(ops, path, args, stream, num_sms); };
    AllReduceTable::Size& size = table.sizes[static_cast<size_t>(i)];
    size.bytes = args.part.rows * row_bytes;
    if (size.bytes <= kMostLineBytes) size.lines_us = us(AllReducePath::lines);
    size.large_us = us(rank.count > 2 ? AllReducePath::two_shot : AllReducePath::chunks);
    size.nccl_us = us(AllReducePath::nccl);
  }
  return table;
}

std::string describe(const AllReduceTable& table, const AllReduceCrossover& crossover) {
  std::string text =
      fmt::format("all-reduce over peer memory, lines up to {} KiB, ", crossover.lines_up_to >> 10);
  text += crossover.nccl_from == AllReduceCrossover{}.nccl_from
              ? std::string("never NCCL")
              : fmt::format("NCCL from {} KiB on", crossover.nccl_from >> 10);
  text += "; us by lines / chunks / NCCL:";
  for (int32_t i = 0; i < table.count; ++i) {
    const AllReduceTable::Size& size = table.sizes[static_cast<size_t>(i)];
    text += fmt::format("{} {} KiB {} / {} / {}", i > 0 ? "," : "", size.bytes >> 10, text_of(size.lines_us),
                        text_of(size.large_us), text_of(size.nccl_us));
  }
  return text;
}

}  // namespace minfer::cuda
