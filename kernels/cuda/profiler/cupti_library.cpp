#include "kernels/cuda/profiler/cupti_library.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

namespace minfer::cuda {
namespace {

/// Folders where the library may lie beside those that the loader searches: with the toolkit, and with the library of this very
/// process that comes from the same toolkit.
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

void* open_cupti(std::string& error) {
  static constexpr const char* kNames[]{"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
  for (const char* name : kNames) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  for (const std::string& folder : folders()) {
    for (const char* name : kNames) {
      if (void* handle = dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    }
  }
  error = fmt::format("no libcupti.so was found on the library path or in {}", fmt::join(folders(), ", "));
  return nullptr;
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

bool CuptiLibrary::find_functions(void* handle, std::string& error) {
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (function == nullptr && error.empty()) error = fmt::format("libcupti has no {}", symbol);
  };
  find(get_version, "cuptiGetVersion");
  find(get_timestamp, "cuptiGetTimestamp");
  find(subscribe, "cuptiSubscribe");
  find(unsubscribe, "cuptiUnsubscribe");
  find(finalize, "cuptiFinalize");
  find(enable, "cuptiActivityEnable");
  find(disable, "cuptiActivityDisable");
  find(flush_all, "cuptiActivityFlushAll");
  find(set_attribute, "cuptiActivitySetAttribute");
  find(register_callbacks, "cuptiActivityRegisterCallbacks");
  find(register_timestamp_callback, "cuptiActivityRegisterTimestampCallback");
  find(next_record, "cuptiActivityGetNextRecord");
  find(num_dropped, "cuptiActivityGetNumDroppedRecords");
  find(push_external_id, "cuptiActivityPushExternalCorrelationId");
  find(pop_external_id, "cuptiActivityPopExternalCorrelationId");
  find(result_string_, "cuptiGetResultString");
  if (!error.empty()) return false;
  std::string absence;
  std::swap(absence, error);
  find(subscribe_v2, "cuptiSubscribe_v2");
  std::swap(absence, error);
  return true;
}

const CuptiLibrary* CuptiLibrary::load(std::string& error) {
  static std::mutex mutex;
  static CuptiLibrary library;
  static bool is_loaded = false;
  const std::lock_guard lock(mutex);
  if (is_loaded) return &library;
  void* const handle = open_cupti(error);
  if (handle == nullptr) return nullptr;
  is_loaded = library.find_functions(handle, error);
  return is_loaded ? &library : nullptr;
}

std::string CuptiLibrary::text(CUptiResult result) const {
  const char* name = nullptr;
  if (result_string_(result, &name) != CUPTI_SUCCESS || name == nullptr) name = "CUPTI error";
  return fmt::format("{} ({})", name, static_cast<int>(result));
}

#endif  // MINFER_HAS_CUPTI_HEADERS

}  // namespace minfer::cuda
