#pragma once

#include <memory>

#include "kernels/comm/host_communicator.h"
#include "kernels/comm/process_group.h"

namespace minfer {

/// Ranks that are processes. Sums are made in the ranks' order by each rank that needs them, from the same addends: the same bits
/// everywhere, and those of ranks that are threads. A wait longer than `patience` is a failure.
std::unique_ptr<HostCommunicator> make_process_communicator(std::shared_ptr<ProcessGroup> processes,
                                                            std::chrono::milliseconds patience);

}  // namespace minfer
