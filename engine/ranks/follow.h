#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "engine/options/engine_options.h"
#include "engine/ranks/rank_channel.h"
#include "kernels/backend.h"
#include "models/decoder/weights/model_source.h"
#include "profiling/record/rank_step.h"
#include "profiling/trace/range_trace.h"

namespace minfer {

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
