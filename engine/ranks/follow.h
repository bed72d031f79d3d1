#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>

#include "engine/options/engine_options.h"
#include "engine/ranks/step_message.h"
#include "kernels/backend.h"
#include "models/decoder/weights/model_source.h"
#include "profiling/record/rank_step.h"
#include "profiling/trace/range_trace.h"

namespace minfer {

/// How far this host's monotonic clock is ahead of the first rank's on another host, measured by the orders that come
/// from there. An order cannot be received before it is sent. So the least difference of the last 256 to 512 orders
/// is the difference of the clocks plus the shortest way of an order. Times brought to the first rank's clock are
/// early by that way, some tens of microseconds. The clocks drift against each other, so older orders do not count.
class OrderClock {
 public:
  void add(int64_t sent_ns, int64_t received_ns) {
    if (count_++ % kOrders == 0) {
      before_ns_ = least_ns_;
      least_ns_ = kNone;
    }
    least_ns_ = std::min(least_ns_, received_ns - sent_ns);
  }
  /// 0 before the first order.
  int64_t ahead_ns() const { return count_ == 0 ? 0 : std::min(least_ns_, before_ns_); }

 private:
  static constexpr uint64_t kOrders = 256;
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  uint64_t count_ = 0;
  int64_t least_ns_ = kNone;   ///< of the orders since the last whole 256
  int64_t before_ns_ = kNone;  ///< of those 256
};

/// Receivers of what a rank records. The rank's thread calls all of them; null: nothing is called.
struct RankRecords {
  /// Takes the ops that steps run, by OpId, when the rank is ready and the others do not know it yet.
  std::function<void(std::span<const OpInfo>)> on_ready = nullptr;
  /// Takes the stamps of a recorded step.
  std::function<void(int64_t step, const StepStamps&)> on_stamps = nullptr;
  std::function<void(const RankStep&)> on_step = nullptr;
  /// Returns the tracer of the device, for a step in a traced range.
  std::function<DeviceTracer*()> tracer = nullptr;
  /// Takes a traced range, when the first rank wants to meet.
  std::function<void(RankTrace)> on_trace = nullptr;
};

/// Runs a rank other than the first from begin to end: loads its `share`, agrees with the others on the
/// number of KV blocks, then launches and finishes the steps that the first rank orders, until the first
/// rank orders the end. Throws what loading or a step throws, and DeviceError once another rank has failed.
void follow(ModelSource& share, const EngineOptions& options, int32_t logit_slice,
            std::unique_ptr<Backend> backend, RankChannel& channel, const RankRecords& records = {});

}  // namespace minfer
