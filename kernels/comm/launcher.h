#pragma once

#include <memory>
#include <string>

#include "kernels/comm/process_group.h"

namespace minfer {

/// What the environment says of a launcher that started this process.
struct Launch {
  int32_t rank = 0;
  int32_t count = 1;
  std::string launcher;  ///< "mpirun" or "srun", for messages
};

/// Of mpirun, or of srun with PMIx; count 1: of none, or alone. `variable`: getenv, or what stands for it in tests.
Launch read_launch(const char* (*variable)(const char* name));
Launch read_launch();

/// Joins the other processes that the launcher started. Once a process. Throws Error if this build or this machine has no MPI, naming
/// the package that brings it, or if MPI does not start.
std::shared_ptr<ProcessGroup> join_processes(const Launch& launch);

}  // namespace minfer
