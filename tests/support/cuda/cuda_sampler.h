#pragma once

#include <cmath>
#include <deque>

#include <gtest/gtest.h>

#include "kernels/cpu/ops.h"
#include "kernels/cuda/sampling/sample.h"
#include "tests/support/cuda/cuda_data.h"

namespace minfer::test {

/// SampleOps with the memory that a step gives it. A row without a state gets its own state, with a history that gives
/// its counts.
class CudaSampler {
 public:
  /// `slots`: the number of sequences whose state is kept; 0: as many as rows.
  CudaSampler(int32_t rows, int64_t vocabulary, int32_t slots = 0)
      : ops_(run_.num_sms(), limits(rows, vocabulary)),
        tables_(limits(slots > 0 ? slots : rows, vocabulary)),
        tokens_(std::vector<int32_t>(static_cast<size_t>(rows), kUnwritten)),
        results_(std::vector<std::byte>(cuda::SampleOps::result_bytes(rows), std::byte{0x5a})) {}

  /// Draws from `logits`, which may have more rows than `rows`. `previous`: the tokens that the step before drew.
  std::vector<SampledToken> sample(const Tensor& logits, std::span<const SamplingRow> rows,
                                   std::span<const int32_t> previous = {}) {
    const cuda::SampleMode mode = stage(rows, previous);
    launch(logits, mode);
    return drawn(rows.size());
  }
  /// The same, with logits that come in slices of `slice` rows.
  std::vector<SampledToken> sample_in_slices(const Tensor& logits, std::span<const SamplingRow> rows,
                                             int64_t slice) {
    const cuda::SampleMode mode = stage(rows);
    for (int64_t first = 0; first < logits.rows; first += slice) {
      Tensor some = logits;
      some.data = logits.f32_row(first);
      some.rows = std::min(slice, logits.rows - first);
      launch(some, mode, static_cast<int32_t>(first));
    }
    return drawn(rows.size());
  }
  /// The kernels of sample(), captured for a mode; call stage() before each replay.
  cuda::GraphExec capture(const Tensor& logits, cuda::SampleMode mode) {
    return run_.capture([&] { launch(logits, mode); });
  }
  void replay(const cuda::GraphExec& graph) { run_.replay(graph); }
  /// Copies the rows to the device.
  cuda::SampleMode stage(std::span<const SamplingRow> rows, std::span<const int32_t> previous = {}) {
    run_.wait();
    const std::vector<SamplingRow> named = with_states(rows);
    std::vector<std::byte> bytes(cuda::SampleOps::packed_bytes(rows.size()));
    const cuda::SampleMode mode =
        cuda::SampleOps::pack(named, tables_.bring(run_.launch(), named), bytes.data());
    upload(packed_, bytes);
    upload(previous_, std::as_bytes(previous));
    return mode;
  }
  std::vector<SampledToken> drawn(size_t count) {
    run_.wait();
    std::vector<SampledToken> out(count);
    cuda::SampleOps::unpack(results_.values().data(), out);
    return out;
  }
  /// The tokens that the next step would read, one for each row of the constructor.
  std::vector<int32_t> tokens() { return tokens_.values(); }

  static constexpr int32_t kUnwritten = -77;

 private:
  static StepLimits limits(int32_t rows, int64_t vocabulary) {
    StepLimits limits;
    limits.max_sequences = limits.max_logit_rows = limits.logit_slice = rows;
    limits.vocab_size = vocabulary;
    return limits;
  }
  static void upload(const cuda::DeviceBuffer& to, std::span<const std::byte> bytes) {
    if (bytes.size() > to.bytes()) cuda::require_equal("test rows: bytes", std::ssize(bytes), 0);
    cuda::check(cudaMemcpy(to.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "upload");
    cuda::check(cudaDeviceSynchronize(), "upload");  // the copy may return before the last bytes arrive
  }
  void launch(const Tensor& logits, cuda::SampleMode mode, int32_t first_row = 0) {
    cuda::Launch launch = run_.launch();
    ops_.sample(launch, logits, first_row, mode, packed_.as<std::byte>(), tables_.view(),
                previous_.as<int32_t>(), tokens_.data(), results_.data());
  }
  std::vector<SamplingRow> with_states(std::span<const SamplingRow> rows) {
    std::vector<SamplingRow> named(rows.begin(), rows.end());
    histories_.clear();
    for (SamplingRow& row : named) {
      if (row.state != 0) continue;
      row.state = ++last_state_;
      std::vector<int32_t>& history = histories_.emplace_back();
      for (const TokenCount& seen : row.counts) {
        if (seen.in_prompt) history.push_back(seen.token);
      }
      row.num_prompt = static_cast<int32_t>(history.size());
      for (const TokenCount& seen : row.counts)
        history.insert(history.end(), static_cast<size_t>(seen.output_count), seen.token);
      row.history = history;
    }
    return named;
  }

  CudaRun run_;
  cuda::SampleOps ops_;
  cuda::SamplingTables tables_;
  uint64_t last_state_ = uint64_t{1} << 40;
  std::deque<std::vector<int32_t>> histories_;
  CudaArray<int32_t> tokens_;
  CudaArray<std::byte> results_;
  cuda::DeviceBuffer packed_{size_t{8} << 20, "packed rows"};
  cuda::DeviceBuffer previous_{size_t{1} << 16, "tokens of the step before"};
};

/// The tokens that the CPU backend draws from the same logits.
inline std::vector<SampledToken> sample_on_cpu(std::vector<float> logits, std::span<const SamplingRow> rows) {
  cpu::Workspace workspace;
  ThreadPool pool(8);
  const cpu::Isa isa = cpu::selected_isa();
  std::vector<SampledToken> out(rows.size());
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t vocabulary = static_cast<int64_t>(logits.size()) / count;
  cpu::sample({logits.data(), DType::f32, count, vocabulary, vocabulary}, rows, out,
              {.pool = &pool, .isa = isa, .lanes = &cpu::lane_kernels(isa), .workspace = &workspace});
  return out;
}

/// Draws a row of `logits` for each of `rows`, without changing the logits.
inline std::vector<SampledToken> sample(const std::vector<float>& logits, std::span<const SamplingRow> rows,
                                        std::span<const int32_t> previous = {}) {
  const int64_t vocabulary = std::ssize(logits) / std::ssize(rows);
  const CudaTensor tensor(DType::f32, std::ssize(rows), vocabulary, logits);
  std::vector<SampledToken> out =
      CudaSampler(static_cast<int32_t>(rows.size()), vocabulary).sample(tensor.tensor(), rows, previous);
  const std::vector<float> after = tensor.values();
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_TRUE(after[i] == logits[i] || std::isnan(logits[i])) << "logits are not to be changed";
  return out;
}

}  // namespace minfer::test
