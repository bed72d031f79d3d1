#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "kernels/comm/rank.h"

namespace minfer {

class ProcessGroup;
class RankFailure;

/// The channel by which the first of several ranks leads the others: its messages reach each
/// of them, whole and in order. One thread a rank. Throws DeviceError once a rank has failed.
class RankChannel {
 public:
  virtual ~RankChannel() = default;
  virtual Rank rank() const = 0;
  /// Sends a message. First rank only. Does not wait for the others.
  virtual void send(std::span<const std::byte> message) = 0;
  /// Waits for the next message. Other ranks only. The result is valid until the next call.
  virtual std::span<const std::byte> receive() = 0;
  /// The least of all ranks' values. Every rank calls it and gets the result; the ranks meet here.
  virtual int64_t least(int64_t value) = 0;
};

/// The channel of ranks that are processes.
std::unique_ptr<RankChannel> make_process_channel(std::shared_ptr<ProcessGroup> processes,
                                                  std::chrono::milliseconds patience);

/// Channels of `count` ranks that are threads of this process.
std::vector<std::unique_ptr<RankChannel>> make_thread_channels(int32_t count,
                                                               std::shared_ptr<RankFailure> failure);

}  // namespace minfer
