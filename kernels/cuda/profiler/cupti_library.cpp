#include "kernels/cuda/profiler/cupti_library.h"

#include <atomic>
#include <cstdlib>
#include <vector>

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "kernels/base/error.h"

namespace minfer::cuda {
namespace {

/// Folders where the library may lie beside those that the loader searches: the toolkit's, and the folder of
/// this process's library from the same toolkit.
std::vector<std::string> folders() {
  std::vector<std::string> folders;
  Dl_info library{};
  if (dladdr(reinterpret_cast<void*>(&cublasLtGetVersion), &library) != 0 && library.dli_fname != nullptr) {
    const std::string path = library.dli_fname;
    const size_t slash = path.rfind('/');
    if (slash != std::string::npos) folders.push_back(path.substr(0, slash));
  }
  std::vector<std::string> roots;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable); root != nullptr && *root != '\0') roots.emplace_back(root);
  }
  roots.emplace_back("/usr/local/cuda");
  for (const std::string& root : roots) {
    for (const char* folder : {"/lib64", "/extras/CUPTI/lib64", "/lib"})
      folders.push_back(root + folder);
  }
  return folders;
}

std::atomic<int> g_holds{0};

}  // namespace

CuptiFunctions::CuptiFunctions() {
  std::vector<std::string> paths{""};
  for (const std::string& folder : folders())
    paths.push_back(folder + "/");
  for (const std::string& path : paths) {
    for (const char* name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so"}) {
      library_ = dlopen((path + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library_ != nullptr) return;
    }
  }
  fail<DeviceError>("CUPTI cannot be loaded: no libcupti.so was found on the library path or in {}",
                    fmt::join(folders(), ", "));
}

void* CuptiFunctions::find(const char* symbol) const {
  return dlsym(library_, symbol);
}

void* CuptiFunctions::found(const char* symbol) const {
  void* const function = find(symbol);
  if (function == nullptr)
    fail<DeviceError>("CUPTI lacks {}, which the CUDA toolkit has from 12.6 on", symbol);
  return function;
}

CuptiHold::CuptiHold() {
  ++g_holds;
}

CuptiHold::~CuptiHold() {
  --g_holds;
}

bool CuptiHold::any() {
  return g_holds > 0;
}

#ifdef MINFER_HAS_CUPTI_HEADERS

const CuptiLibrary* CuptiLibrary::load(std::string& error) {
  try {
    static const CuptiLibrary library;
    return &library;
  } catch (const DeviceError& problem) {
    error = problem.what();
    return nullptr;
  }
}

std::string CuptiLibrary::text(CUptiResult result) const {
  const char* name = nullptr;
  if (result_string_(result, &name) != CUPTI_SUCCESS || name == nullptr) name = "CUPTI error";
  return fmt::format("{} ({})", name, static_cast<int>(result));
}

#endif  // MINFER_HAS_CUPTI_HEADERS

}  // namespace minfer::cuda
