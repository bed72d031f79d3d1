#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/comm/rank_ops.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/capture.h"
#include "kernels/cuda/launch/launch.h"

namespace minfer::test {

/// The number of ranks in most tests.
inline constexpr int32_t kTwoRanks = 2;

inline int32_t num_usable_gpus() {
  int32_t count = 0;
  for (const CudaDevice& device : cuda_devices())
    count += is_usable(device) ? 1 : 0;
  return count;
}

/// Runs work(rank) for each rank on its own thread, with the rank's GPU as the current one. If a rank throws, its error becomes
/// the failure of all. Returns one text for each rank, empty if it threw nothing.
inline std::vector<std::string> run_on_ranks(int32_t count, RankFailure& failure,
                                             const std::function<void(Rank)>& work) {
  std::vector<std::string> errors(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int32_t index = 0; index < count; ++index) {
    threads.emplace_back([&, index] {
      try {
        cuda::check(cudaSetDevice(index), "selecting a device");
        work(Rank{index, count});
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(index)] = error.what();
        failure.set(error.what());
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  return errors;
}

/// A rank's ops and the stream that they run on. Used on the rank's thread.
class RankRun {
 public:
  RankRun(std::shared_ptr<CudaRanks> ranks, Rank rank, const StepLimits& limits)
      : rank_(rank),
        num_sms_(cuda_devices()[static_cast<size_t>(rank.index)].multiprocessors),
        stream_(cuda::make_stream()),
        ops_(std::move(ranks), rank, stream_.get(), num_sms_, limits) {}

  Rank rank() const { return rank_; }
  cudaStream_t stream() const { return stream_.get(); }
  int32_t num_sms() const { return num_sms_; }
  cuda::RankOps& ops() { return ops_; }
  cuda::Launch launch() const { return {stream_.get(), num_sms_}; }
  /// Waits for the other rank: call it between allocating memory and using it.
  void meet() { ops_.meet(); }
  void wait() { ops_.wait(stream_.get(), "a test"); }
  /// Captures the launches of `work` as a graph. Other threads may wait for events meanwhile.
  template <class Work>
  cuda::GraphExec capture(Work&& work) const {
    return cuda::replayable(stream_.get(), "capture", work);
  }

 private:
  Rank rank_;
  int32_t num_sms_;
  cuda::Stream stream_;
  cuda::RankOps ops_;
};

/// Rows of f32 or bf16 in device memory, with or without gaps between them.
class RankTensor {
 public:
  RankTensor(DType dtype, int64_t rows, int64_t cols, int64_t stride = 0)
      : tensor_{nullptr, dtype, rows, cols, stride > 0 ? stride : cols},
        buffer_(static_cast<size_t>(tensor_.rows * tensor_.stride) * traits(dtype).block_bytes, "test data") {
    tensor_.data = buffer_.data();
  }
  const Tensor& tensor() const { return tensor_; }
  /// The first `rows` rows.
  Tensor first(int64_t rows) const {
    Tensor result = tensor_;
    result.rows = rows;
    return result;
  }
  size_t bytes() const { return buffer_.bytes(); }
  /// Sets all bits: NaN in either type.
  void poison(cudaStream_t stream) const {
    cuda::check(cudaMemsetAsync(buffer_.data(), 0xff, buffer_.bytes(), stream), "poisoning");
  }

 private:
  Tensor tensor_;
  cuda::DeviceBuffer buffer_;
};

}  // namespace minfer::test
