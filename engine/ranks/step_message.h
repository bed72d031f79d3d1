#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/options/engine_options.h"
#include "engine/scheduling/batch_builder.h"
#include "kernels/backend.h"
#include "kernels/comm/rank.h"

namespace minfer {

/// The orders of the first rank to the others.
enum class RankOrder : int32_t {
  launch,  ///< a step
  finish,  ///< the oldest step
  meet,    ///< after it has finished all steps: hand over what it has of a traced range
  end,     ///< everything
};

/// Writes orders as bytes. It writes only the new entries of the block table, so a decode step costs the same for any context.
class RankOrders {
 public:
  /// Valid until the next call.
  std::span<const std::byte> launch(const StepArgs& step);
  std::span<const std::byte> plain(RankOrder order);
  /// Says whether the launches from now on are in a range that is traced.
  void set_traced(bool traced) { traced_ = traced; }

 private:
  std::vector<std::byte> bytes_;
  bool traced_ = false;
};

RankOrder order_of(std::span<const std::byte> message);
/// A launch order as it is read.
struct LaunchOrder {
  StepArgs step;
  bool is_stamped = false;  ///< the first rank records the step
  bool is_traced = false;   ///< it is in a range that is traced kernel by kernel
  int64_t sent_ns = 0;      ///< by the first rank's clock
};

/// Reads launch orders, and keeps the block table between them.
class RankSteps {
 public:
  /// `options` with all sizes chosen.
  explicit RankSteps(const EngineOptions& options);

  /// Returns the step with its batch in host memory, valid until the next call. Throws Error if the message does not hold what it says.
  LaunchOrder read(std::span<const std::byte> message);

 private:
  HostBatch batch_;
  size_t max_rows_;  ///< of the block table
};

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
