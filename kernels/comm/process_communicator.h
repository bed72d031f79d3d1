#pragma once

#include <memory>

#include "kernels/comm/host_communicator.h"
#include "kernels/comm/process_group.h"

namespace minfer {

/// A communicator for ranks that are processes. Each rank that needs a sum adds the same addends in the ranks' order: the same
/// bits in all ranks, and the same as with ranks that are threads. A wait longer than `patience` is a failure.
std::unique_ptr<HostCommunicator> make_process_communicator(std::shared_ptr<ProcessGroup> processes,
                                                            std::chrono::milliseconds patience);

}  // namespace minfer
