#pragma once

#include <cstdint>

#include "kernels/stamps.h"

namespace minfer {

/// Receives the stamps of recorded steps from the ranks that are other threads of this process. Each rank calls it on its own
/// thread, in the order of its steps, before or after the first rank has recorded the step. The sink copies what it needs and
/// never blocks.
class RankStampSink {
 public:
  virtual ~RankStampSink() = default;
  virtual void consume_stamps(int32_t rank, int64_t step, const StepStamps& stamps) noexcept = 0;
};

}  // namespace minfer
