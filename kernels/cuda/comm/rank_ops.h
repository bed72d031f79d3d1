#pragma once

#include <memory>
#include <optional>

#include "kernels/cuda/comm/all_reduce_path.h"
#include "kernels/cuda/comm/cuda_ranks.h"
#include "kernels/cuda/comm/nccl_library.h"
#include "kernels/cuda/comm/peer_memory.h"
#include "kernels/cuda/comm/reduction.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// The ops between ranks, with their memory, for one rank. Its backend owns it and uses it on its thread, whose
/// current device is the rank's. All ranks make it at the same time, with the same limits except for their
/// shares of a model. They call the same ops in the same order with the same sizes.
class RankOps {
 public:
  /// Waits for the other ranks. `stream`: idle; the measurements run on it.
  RankOps(std::shared_ptr<CudaRanks> ranks, Rank rank, cudaStream_t stream, int32_t num_sms,
          const StepLimits& limits);
  ~RankOps();

  /// See Backend::all_reduce(). `arrived`: receives the time at which the first row was summed, so the data of
  /// all ranks for it had come; null: nowhere. Returns whether the time will be stored.
  bool all_reduce(Launch& launch, const AllReduceArgs& args, unsigned long long* arrived = nullptr);
  /// See Backend::gather_columns().
  void gather_columns(Launch& launch, const Tensor& part, const Tensor& out);
  /// Copies tokens [rows] of the first rank to every rank. Device memory.
  void share_tokens(Launch& launch, int32_t* tokens, int32_t rows);

  /// Waits for the stream. Throws as CudaRanks::wait() does.
  void wait(cudaStream_t stream, std::string_view what);
  void wait(cudaEvent_t event, std::string_view what);

  /// Waits for the other ranks, on the host. Memory that GPUs see of each other may be allocated or freed
  /// between two meetings if no kernel waits for another rank then: the driver may wait for such kernels.
  void meet() { ranks_->exchange(rank_, char{0}); }

  /// Ends what NCCL waits for on the device, after a rank has failed.
  void abort();

  /// For tests and benchmarks: uses this path from now on, if peer memory has it. All ranks set the same.
  void force(std::optional<AllReducePath> path) { forced_ = path; }

 private:
  void make_peer_memory(const StepLimits& limits);
  void gather_by_peers(Launch& launch, const Tensor& part, const Tensor& out);
  void join_nccl(cudaStream_t stream, const StepLimits& limits);
  void choose(cudaStream_t stream, const StepLimits& limits);
  AllReducePath path_of(const AllReduceArgs& args) const;
  Channel channel(size_t kind) const;
  void reduce_with_nccl(Launch& launch, const AllReduceArgs& args);
  /// Rows [first, first + count).
  void reduce_rows(Launch& launch, AllReducePath path, const AllReduceArgs& args, int64_t first,
                   int64_t count, unsigned long long* arrived) const;
  void wait(const std::function<cudaError_t()>& query, std::string_view what);

  std::shared_ptr<CudaRanks> ranks_;
  Rank rank_;
  int32_t num_sms_;
  AllReduceCrossover crossover_;
  std::optional<AllReducePath> forced_;
  std::unique_ptr<NcclComm> nccl_;  ///< null: not used
  DeviceBuffer gathered_;           ///< the others' columns, by NCCL
  BlockLayout layout_;
  std::array<std::byte*, kMostRanks> blocks_{};
  DeviceBuffer states_;  ///< ChannelState of each kind of exchange
};

}  // namespace minfer::cuda
