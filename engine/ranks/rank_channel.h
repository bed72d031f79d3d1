#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "kernels/comm/rank.h"

namespace minfer {

class ProcessGroup;
class RankFailure;

/// How the first of several ranks leads the others: what it sends reaches each of them, whole and in order. One thread a rank. Throws
/// DeviceError once a rank has failed.
class RankChannel {
 public:
  virtual ~RankChannel() = default;
  virtual Rank rank() const = 0;
  /// Of the first rank. Does not wait for the others.
  virtual void send(std::span<const std::byte> message) = 0;
  /// Of the other ranks: waits for the next message. Valid until the next call.
  virtual std::span<const std::byte> receive() = 0;
  /// The least of all ranks' values, in all ranks, which meet here.
  virtual int64_t least(int64_t value) = 0;
};

/// The channel of ranks that are processes.
std::unique_ptr<RankChannel> make_process_channel(std::shared_ptr<ProcessGroup> processes,
                                                  std::chrono::milliseconds patience);

/// Channels of `count` ranks that are threads of this process.
std::vector<std::unique_ptr<RankChannel>> make_thread_channels(int32_t count,
                                                               std::shared_ptr<RankFailure> failure);

}  // namespace minfer
