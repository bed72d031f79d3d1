#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "kernels/comm/host_communicator.h"
#include "kernels/comm/rank_failure.h"

namespace minfer {

/// Communicators of `count` ranks that are threads of this process, one for each rank. A rank that waits for another longer than
/// `patience` sets `failure`; ranks that find it set throw with its reason.
std::vector<std::unique_ptr<HostCommunicator>> make_thread_communicators(int32_t count,
                                                                         std::shared_ptr<RankFailure> failure,
                                                                         std::chrono::milliseconds patience);

}  // namespace minfer
