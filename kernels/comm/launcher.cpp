#include "kernels/comm/launcher.h"

#include <cstdlib>
#include <filesystem>

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include "kernels/base/error.h"

namespace minfer {
namespace {

constexpr const char* kModuleName = "libminfer_mpi.so";
constexpr const char* kMpiLibrary = "libmpi.so.40";  // Open MPI 3 to 5

int32_t number(const char* text) {
  return text == nullptr ? -1 : std::atoi(text);
}

/// The module's path: beside the program, as it is built, or where the package puts it.
std::filesystem::path module_path() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::filesystem::path& path :
       {folder / kModuleName, folder.parent_path() / "lib" / "minfer" / kModuleName}) {
    if (std::filesystem::exists(path, error)) return path;
  }
  return {};
}

std::unique_ptr<ProcessTransport> make_transport(const Launch& launch) {
  const std::string started = fmt::format("{} started {} processes of minfer", launch.launcher, launch.count);
  const std::filesystem::path path = module_path();
  if (path.empty()) {
    fail("{}, but this build has no MPI ({} is missing): install libopenmpi-dev and build again", started,
         kModuleName);
  }
  // Global: the module finds MPI's symbols there, and so do the parts that Open MPI loads in turn.
  if (::dlopen(kMpiLibrary, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    fail("{}, but {} cannot be loaded: {}; the package libopenmpi3 (which openmpi-bin brings) is needed",
         started, kMpiLibrary, ::dlerror());
  }
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) fail("{}, but its module cannot be loaded: {}", started, ::dlerror());
  const auto version = reinterpret_cast<TransportVersionFunction>(::dlsym(module, kTransportVersionFunction));
  const auto make = reinterpret_cast<MakeTransportFunction>(::dlsym(module, kMakeTransportFunction));
  if (version == nullptr || make == nullptr || version() != kTransportModuleVersion)
    fail("{} is of another version than this program: build or install both together", path.string());
  std::string error;
  std::unique_ptr<ProcessTransport> transport(make(error));
  if (!transport) fail("{}, but MPI does not start: {}", started, error);
  if (transport->rank() != Rank{launch.rank, launch.count}) {
    const Rank rank = transport->rank();
    fail(
        "{}, but MPI calls this one rank {} of {}, expected rank {}: the launcher is of another MPI than "
        "Open MPI (with srun: --mpi=pmix)",
        started, rank.index, rank.count, launch.rank);
  }
  return transport;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

std::string own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::string text;
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return text;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &cores)) text += fmt::format("{} ", core);
  return text;
}

}  // namespace

Launch read_launch(const char* (*variable)(const char*)) {
  Launch launch{.rank = number(variable("OMPI_COMM_WORLD_RANK")),
                .count = number(variable("OMPI_COMM_WORLD_SIZE")),
                .launcher = "mpirun"};
  if (launch.count < 1 && variable("PMIX_RANK") != nullptr) {
    launch = {.rank = number(variable("PMIX_RANK")),
              .count = number(variable("SLURM_STEP_NUM_TASKS")),
              .launcher = "srun"};
  }
  if (launch.count < 2) return {};
  return launch;
}

Launch read_launch() {
  return read_launch([](const char* name) -> const char* { return std::getenv(name); });
}

std::shared_ptr<ProcessGroup> join_processes(const Launch& launch) {
  return std::make_shared<ProcessGroup>(
      make_transport(launch),
      ProcessInfo{.host = host_name(), .process_id = ::getpid(), .cores = own_cores()});
}

}  // namespace minfer
