#pragma once

#include <memory>

#include "engine/ranks/rank_channel.h"
#include "kernels/comm/process_group.h"

namespace minfer {

/// The channel of ranks that are processes.
std::unique_ptr<RankChannel> make_process_channel(std::shared_ptr<ProcessGroup> processes,
                                                  std::chrono::milliseconds patience);

}  // namespace minfer
