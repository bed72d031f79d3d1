#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/comm/rank.h"

namespace minfer {

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

}  // namespace minfer
