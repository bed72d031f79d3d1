#pragma once

#include <memory>
#include <string>

#include "kernels/comm/process_group.h"

namespace minfer {

/// The environment's account of the launcher that started this process.
struct Launch {
  int32_t rank = 0;
  int32_t count = 1;
  std::string launcher;  ///< "mpirun" or "srun", for messages
};

/// Reads the variables of mpirun, or of srun with PMIx. count 1: no launcher, or one process. `variable`: getenv, or a test's stand-in.
Launch read_launch(const char* (*variable)(const char* name));
Launch read_launch();

/// Joins the other processes that the launcher started. Once in a process. Throws Error if MPI does not start, or if this build or
/// this machine has no MPI; the error then names the package that brings it.
std::shared_ptr<ProcessGroup> join_processes(const Launch& launch);

}  // namespace minfer
