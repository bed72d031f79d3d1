#pragma once

#include <span>

#include "kernels/comm/rank.h"

namespace minfer {

/// What the ranks of the CPU backend exchange while a step runs, in host memory. All ranks call the same functions in the same order
/// with the same sizes, each from one thread; a call returns when its rank has what it needs and its buffers may be written again.
/// Throws DeviceError, in every rank, once a rank has failed or does not come.
class HostCommunicator {
 public:
  virtual ~HostCommunicator() = default;
  virtual Rank rank() const = 0;
  /// values[i] = the sum over all ranks of their values[i], in the ranks' order: the same bits in every rank and every run.
  virtual void all_reduce(std::span<float> values) = 0;
  /// The parts of all ranks one behind the other in the first rank's `all`; of other ranks it is empty.
  virtual void gather(std::span<const float> part, std::span<float> all) = 0;
  /// The first rank's values, in every rank.
  virtual void broadcast(std::span<int32_t> values) = 0;
  /// When all ranks had come to the last of these, by now_ns(); 0: not known.
  virtual int64_t arrived_ns() const { return 0; }
};

}  // namespace minfer
