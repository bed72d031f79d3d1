#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/options/engine_options.h"
#include "engine/scheduling/batch_builder.h"
#include "kernels/backend.h"

namespace minfer {

/// What the first rank tells the others to do.
enum class RankOrder : int32_t {
  launch,  ///< a step
  finish,  ///< the oldest step
  meet,    ///< when it has finished all steps: what it has of a traced range is handed over
  end,     ///< everything
};

/// Writes orders as bytes; of the block table what is new alone, so that a decode step costs the same for any context.
class RankOrders {
 public:
  /// Valid until the next call.
  std::span<const std::byte> launch(const StepArgs& step);
  std::span<const std::byte> plain(RankOrder order);
  /// Whether the launches from now on are in a range that is traced.
  void set_traced(bool traced) { traced_ = traced; }

 private:
  std::vector<std::byte> bytes_;
  bool traced_ = false;
};

RankOrder order_of(std::span<const std::byte> message);
/// Of a launch: whether the first rank records the step.
bool is_stamped(std::span<const std::byte> message);
/// Of a launch: whether it is in a range that is traced kernel by kernel.
bool is_traced(std::span<const std::byte> message);
/// Of a launch: when it was sent, by the first rank's clock.
int64_t sent_ns(std::span<const std::byte> message);

/// Reads launch orders, and keeps the block table between them.
class RankSteps {
 public:
  /// `options` with all sizes chosen.
  explicit RankSteps(const EngineOptions& options);

  /// The step with its batch in host memory, valid until the next call. Throws Error if the message does not hold what it says.
  StepArgs read(std::span<const std::byte> message);

 private:
  HostBatch batch_;
  size_t max_rows_;  ///< of the block table
};

}  // namespace minfer
