#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/comm/rank_exchange.h"
#include "kernels/cuda/comm/nccl_library.h"
#include "kernels/cuda/device/owners.h"

namespace minfer {

/// The state that GPUs share when they run a model together. In one process, every rank's backend holds the
/// same object, each on its own thread. With one GPU a process, it is this process's part of the group. Any
/// thread may call any function; with several processes, only the rank's thread may.
///
/// Failure: once any thread sets `failure`, the watcher thread sets the abort word, which ends every kernel that waits for
/// another rank. Hosts that wait see `failure` themselves and throw. Each process has its own watcher thread and abort word.
class CudaRanks {
 public:
  /// See make_cuda_ranks().
  explicit CudaRanks(const CudaRanksOptions& options);
  ~CudaRanks();
  CudaRanks(const CudaRanks&) = delete;
  CudaRanks& operator=(const CudaRanks&) = delete;

  int32_t count() const { return options_.count; }
  AllReduceChoice choice() const { return options_.all_reduce; }
  bool is_of_processes() const { return options_.processes != nullptr; }
  /// The number that this process gives the rank's GPU.
  int32_t device_of(Rank rank) const { return is_of_processes() ? own_device_ : rank.index; }
  /// True if the GPUs can reach each other's memory, and are to use it.
  bool uses_peer_memory() const { return uses_peer_memory_; }
  /// Why they cannot; empty: they can, or are not to.
  const std::string& why_no_peers() const { return why_no_peers_; }
  /// Null: there is no NCCL, or it is not wanted.
  const std::shared_ptr<const cuda::NcclLibrary>& nccl() const { return nccl_; }
  RankFailure& failure() const { return exchange_->failure(); }

  /// In page-locked memory, for kernels: not 0 once a rank has failed.
  const uint32_t* abort_word() const { return abort_word_.as<uint32_t>(); }
  /// Returns the values of all ranks, by rank. All call it, in the same order. Throws DeviceError once a rank has failed or does not come.
  template <class T>
  std::vector<T> exchange(Rank rank, const T& own) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::vector<std::string> texts =
        exchange_->exchange(rank, std::string(reinterpret_cast<const char*>(&own), sizeof own));
    std::vector<T> all(texts.size());
    for (size_t from = 0; from < all.size(); ++from) {
      if (texts[from].size() != sizeof(T))
        fail("what ranks tell each other: {} bytes, expected {}", texts[from].size(), sizeof(T));
      std::memcpy(&all[from], texts[from].data(), sizeof(T));
    }
    return all;
  }
  /// Takes each rank's memory and returns all, by rank, for all to write to. All ranks call it. It is freed once no rank can write to it.
  std::vector<std::byte*> share(Rank rank, cuda::DeviceBuffer own);

  /// Runs `work` on a thread whose current device is the rank's, and waits for it. It is for calls of NCCL that
  /// wait on the host for ranks that may not come. Rethrows what `work` throws. Throws once a rank has failed
  /// or the patience of the start is over; the thread then runs on, so `work` owns all that it uses.
  void run_watched(Rank rank, std::function<void()> work, std::string_view what);
  /// Ends the device's work for a communicator, if NCCL does so within a bounded time.
  void abort_nccl(Rank rank, std::unique_ptr<cuda::NcclComm> comm);
  /// Ends a communicator whose work has ended. With several processes, end_in_order() does it, since all ranks have to do so together.
  void end_nccl(std::unique_ptr<cuda::NcclComm> comm);

  /// Waits while `query` returns cudaErrorNotReady. Throws DeviceError for any other error, when a rank has
  /// failed, or after the patience of the ranks, which then have failed. Before it throws, it ends what waits
  /// on the device, calls `abort` and gives the device 2 seconds to become idle. `what`: e.g. "a step".
  void wait(Rank rank, const std::function<cudaError_t()>& query, std::string_view what,
            const std::function<void()>& abort);

  /// See minfer::end_in_order().
  void end_in_order();

  /// How sums are computed, for people. The first rank sets it when it is ready.
  std::string describe() const;
  void set_description(std::string text);

 private:
  void set_abort_word();
  void watch();

  Rank own_rank() const { return options_.processes->rank(); }
  std::string find_gpus(const std::string& nccl_error, std::string& no_peers);
  std::string why_no_opened_memory();
  std::string first_of(Rank rank, const std::string& own);
  std::vector<std::byte*> open_blocks(Rank rank, const cuda::DeviceBuffer& own, std::string& error);
  void close_opened() noexcept;

  CudaRanksOptions options_;
  std::unique_ptr<RankExchange> exchange_;
  int32_t own_device_ = 0;  ///< of this process, if there are several
  bool uses_peer_memory_ = false;
  std::string why_no_peers_;
  std::shared_ptr<const cuda::NcclLibrary> nccl_;
  cuda::PinnedBuffer abort_word_;
  mutable std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::vector<cuda::DeviceBuffer> kept_;
  std::vector<void*> opened_;                            ///< memory of other processes
  std::vector<std::unique_ptr<cuda::NcclComm>> to_end_;  ///< with several processes
  std::string description_;
  std::thread watcher_;  ///< last, since it uses the others
};

}  // namespace minfer
