#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "kernels/comm/rank.h"

namespace minfer {

class ProcessGroup;
class RankFailure;

/// Exchange between the ranks of the CPU backend while a step runs, in host memory. All ranks call the same functions in the same
/// order with the same sizes, each from one thread. A call returns when its rank has its results and may write to its buffers again.
/// Throws DeviceError, in every rank, once a rank has failed or does not come.
class HostCommunicator {
 public:
  virtual ~HostCommunicator() = default;
  virtual Rank rank() const = 0;
  /// values[i] = the sum over all ranks of their values[i], in the ranks' order: the same bits in every rank and every run.
  virtual void all_reduce(std::span<float> values) = 0;
  /// Puts the parts of all ranks one behind the other into the first rank's `all`; the `all` of other ranks is empty.
  virtual void gather(std::span<const float> part, std::span<float> all) = 0;
  /// Copies the first rank's values to every rank.
  virtual void broadcast(std::span<int32_t> values) = 0;
  /// The now_ns() time at which all ranks had reached the last of these calls; 0: not known.
  virtual int64_t arrived_ns() const { return 0; }
};

/// Communicators of `count` ranks that are threads of this process, one for each rank. A rank that waits for another longer than
/// `patience` sets `failure`; ranks that find it set throw with its reason.
std::vector<std::unique_ptr<HostCommunicator>> make_thread_communicators(int32_t count,
                                                                         std::shared_ptr<RankFailure> failure,
                                                                         std::chrono::milliseconds patience);

/// A communicator for ranks that are processes. Each rank that needs a sum adds the same addends in the ranks' order: the same
/// bits in all ranks, and the same as with ranks that are threads. A wait longer than `patience` is a failure.
std::unique_ptr<HostCommunicator> make_process_communicator(std::shared_ptr<ProcessGroup> processes,
                                                            std::chrono::milliseconds patience);

}  // namespace minfer
