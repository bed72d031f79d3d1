#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/options/engine_options.h"
#include "engine/scheduling/batch_builder.h"
#include "kernels/backend.h"

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
/// For a launch: true if the first rank records the step.
bool is_stamped(std::span<const std::byte> message);
/// For a launch: true if it is in a range that is traced kernel by kernel.
bool is_traced(std::span<const std::byte> message);
/// For a launch: the time at which it was sent, by the first rank's clock.
int64_t sent_ns(std::span<const std::byte> message);

/// Reads launch orders, and keeps the block table between them.
class RankSteps {
 public:
  /// `options` with all sizes chosen.
  explicit RankSteps(const EngineOptions& options);

  /// Returns the step with its batch in host memory, valid until the next call. Throws Error if the message does not hold what it says.
  StepArgs read(std::span<const std::byte> message);

 private:
  HostBatch batch_;
  size_t max_rows_;  ///< of the block table
};

}  // namespace minfer
