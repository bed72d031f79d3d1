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

/// What GPUs that run a model together have in common: those of this process, of which every rank's backend has it, each on its own
/// thread; or this process's part in what the GPUs of several processes have, one a process. Every function from any thread, but of
/// processes from the rank's.
///
/// Failure: once `failure` is set, by whoever, a thread of its own sets the abort word, which ends every kernel that waits for another
/// rank; the hosts that wait find `failure` set themselves and throw. Each process has a thread and an abort word of its own.
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
  /// Whether each GPU can reach the memory of each other one, and is to.
  bool uses_peer_memory() const { return uses_peer_memory_; }
  /// Why it cannot; empty: it can, or is not to.
  const std::string& why_no_peers() const { return why_no_peers_; }
  /// Null: not there, or not wanted.
  const std::shared_ptr<const cuda::NcclLibrary>& nccl() const { return nccl_; }
  RankFailure& failure() const { return exchange_->failure(); }

  /// Page-locked, for kernels: not 0 once a rank has failed.
  const uint32_t* abort_word() const { return abort_word_.as<uint32_t>(); }
  /// What every rank brings, by rank; all call it, in the same order. Throws DeviceError once a rank has failed or does not come.
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
  /// Memory of every rank, by rank, that all may write into; all ranks bring theirs. Each is freed when no rank is left that could.
  std::vector<std::byte*> share(Rank rank, cuda::DeviceBuffer own);

  /// Runs `work` on a thread that has the rank's device as the current one, and waits for it: a call of NCCL that waits on the host for
  /// ranks which do not come. Once a rank has failed, or after the patience of the start, throws and leaves it to itself, so `work`
  /// owns what it uses. Rethrows what it throws.
  void run_watched(Rank rank, std::function<void()> work, std::string_view what);
  /// Ends what the device does with a communicator, as far as NCCL does so in a time that is bounded.
  void abort_nccl(Rank rank, std::unique_ptr<cuda::NcclComm> comm);
  /// Ends a communicator of which all that it did has ended: of processes in end_in_order(), since all ranks have to do so together.
  void end_nccl(std::unique_ptr<cuda::NcclComm> comm);

  /// Waits until `query` says something else than cudaErrorNotReady. Throws DeviceError for any other error but success, when a rank
  /// has failed, or after the patience of the ranks, which then have failed; before it throws, what waits on the device has been
  /// ended, `abort` called and the device idle, if it comes to that. `what`: e.g. "a step".
  void wait(Rank rank, const std::function<cudaError_t()>& query, std::string_view what,
            const std::function<void()>& abort);

  /// See minfer::end_in_order().
  void end_in_order();

  /// How sums are computed, for people: set by the first rank when it is ready.
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
  int32_t own_device_ = 0;  ///< of a process
  bool uses_peer_memory_ = false;
  std::string why_no_peers_;
  std::shared_ptr<const cuda::NcclLibrary> nccl_;
  cuda::PinnedBuffer abort_word_;
  mutable std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::vector<cuda::DeviceBuffer> kept_;
  std::vector<void*> opened_;                            ///< memory of other processes
  std::vector<std::unique_ptr<cuda::NcclComm>> to_end_;  ///< of processes
  std::string description_;
  std::thread watcher_;  ///< last: it uses the others
};

}  // namespace minfer
