#pragma once

#include <memory>

#include "engine/engine_options.h"
#include "engine/ranks/rank_channel.h"
#include "kernels/backend.h"
#include "models/decoder/model_source.h"

namespace minfer {

/// What a rank other than the first does from begin to end: loads its `share`, agrees with the others on the number of KV blocks, and
/// then launches and finishes the steps that the first one orders, until that orders the end. Throws what loading or a step throws,
/// and DeviceError once another rank has failed.
void follow(const ModelSource& share, const EngineOptions& options, int32_t logit_slice,
            std::unique_ptr<Backend> backend, RankChannel& channel);

}  // namespace minfer
