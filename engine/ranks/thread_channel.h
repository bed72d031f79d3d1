#pragma once

#include <memory>
#include <vector>

#include "engine/ranks/rank_channel.h"
#include "kernels/comm/rank_failure.h"

namespace minfer {

/// Channels of `count` ranks that are threads of this process.
std::vector<std::unique_ptr<RankChannel>> make_thread_channels(int32_t count,
                                                               std::shared_ptr<RankFailure> failure);

}  // namespace minfer
