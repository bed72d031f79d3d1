#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/comm/meeting_point.h"
#include "kernels/cuda/comm/nccl_library.h"
#include "kernels/cuda/device/owners.h"

namespace minfer {

/// What the GPUs of this process have in common. Shared by the backends of all ranks, each on its own thread; every function from any
/// thread.
///
/// Failure: once `failure` is set, by whoever, a thread of its own sets the abort word, which ends every kernel that waits for another
/// rank; the hosts that wait find `failure` set themselves and throw.
class CudaRanks {
 public:
  /// See make_cuda_ranks().
  explicit CudaRanks(const CudaRanksOptions& options);
  ~CudaRanks();
  CudaRanks(const CudaRanks&) = delete;
  CudaRanks& operator=(const CudaRanks&) = delete;

  int32_t count() const { return options_.count; }
  AllReduceChoice choice() const { return options_.all_reduce; }
  /// Whether each GPU can reach the memory of each other one, and is to.
  bool uses_peer_memory() const { return uses_peer_memory_; }
  /// Null: not there, or not wanted.
  const cuda::NcclLibrary* nccl() const { return nccl_.get(); }
  RankFailure& failure() const { return *options_.failure; }

  /// Page-locked, for kernels: not 0 once a rank has failed.
  const uint32_t* abort_word() const { return abort_word_.as<uint32_t>(); }
  /// What every rank brings, by rank; all call it, in the same order. Throws DeviceError once a rank has failed or does not come.
  template <class T>
  std::vector<T> exchange(Rank rank, T own) {
    start_.come(rank, &own);
    std::vector<T> all;
    for (int32_t from = 0; from < rank.count; ++from)
      all.push_back(*static_cast<T*>(start_.brought(from)));
    start_.leave(rank);
    return all;
  }
  /// Frees `buffer` when no rank is left that could write to it.
  void keep(cuda::DeviceBuffer buffer);

  /// Waits until `query` says something else than cudaErrorNotReady. Throws DeviceError for any other error but success, when a rank
  /// has failed, or after the patience of the ranks, which then have failed; before it throws, what waits on the device has been
  /// ended, `abort` called and the device idle, if it comes to that. `what`: e.g. "a step".
  void wait(Rank rank, const std::function<cudaError_t()>& query, std::string_view what,
            const std::function<void()>& abort);

  /// How sums are computed, for people: set by the first rank when it is ready.
  std::string describe() const;
  void set_description(std::string text);

 private:
  void set_abort_word();
  void watch();

  CudaRanksOptions options_;
  bool uses_peer_memory_ = false;
  std::unique_ptr<cuda::NcclLibrary> nccl_;
  MeetingPoint start_;
  cuda::PinnedBuffer abort_word_;
  mutable std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::vector<cuda::DeviceBuffer> kept_;
  std::string description_;
  std::thread watcher_;  ///< last: it uses the others
};

}  // namespace minfer
