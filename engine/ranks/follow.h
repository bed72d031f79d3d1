#pragma once

#include <functional>
#include <memory>

#include "engine/engine_options.h"
#include "engine/ranks/rank_channel.h"
#include "kernels/backend.h"
#include "models/decoder/model_source.h"
#include "profiling/record/rank_step.h"

namespace minfer {

/// Takes what a recorded step took on a rank, on the rank's thread.
using OnRankStep = std::function<void(const RankStep&)>;

/// What a rank other than the first does from begin to end: loads its `share`, agrees with the others on the number of KV blocks, and
/// then launches and finishes the steps that the first one orders, until that orders the end. Throws what loading or a step throws,
/// and DeviceError once another rank has failed.
void follow(const ModelSource& share, const EngineOptions& options, int32_t logit_slice,
            std::unique_ptr<Backend> backend, RankChannel& channel, const OnRankStep& on_step = {});

}  // namespace minfer
