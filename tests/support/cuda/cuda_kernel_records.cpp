#include "tests/support/cuda/cuda_kernel_records.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

#include <cupti.h>
#include <dlfcn.h>

#include "kernels/cuda/launch/kernel_name.h"

namespace minfer::test {
namespace {

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kBufferAlignment = 8;

/// The data that the callbacks pass on; they know nothing but their function. CUPTI calls them from its
/// own threads.
std::mutex g_mutex;
std::vector<KernelRecord> g_records;
decltype(&cuptiActivityGetNextRecord) g_next_record = nullptr;

void give_buffer(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer != nullptr ? kBufferBytes : 0;
  *max_records = 0;
}

void take_buffer(CUcontext /*context*/, uint32_t /*stream*/, uint8_t* buffer, size_t /*bytes*/,
                 size_t valid_bytes) {
  const std::lock_guard lock(g_mutex);
  CUpti_Activity* record = nullptr;
  while (g_next_record(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    KernelRecord& added = g_records.emplace_back();
    added.name = kernel->name != nullptr ? kernel->name : "";
    added.begin_ns = static_cast<int64_t>(kernel->start);
    added.end_ns = static_cast<int64_t>(kernel->end);
    added.launch.kernel = cuda::kernel_name(added.name.c_str());
    added.launch.grid = {kernel->gridX, kernel->gridY, kernel->gridZ};
    added.launch.block = {kernel->blockX, kernel->blockY, kernel->blockZ};
    added.launch.registers = kernel->registersPerThread;
    added.launch.static_shared_bytes = kernel->staticSharedMemory;
    added.launch.dynamic_shared_bytes = kernel->dynamicSharedMemory;
  }
  std::free(buffer);
}

}  // namespace

/// The functions of libcupti. The program is not linked with it, so other tests run without it.
struct KernelRecorder::Library {
  void* handle = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;

  bool load() {
    for (const char* path : {"libcupti.so.13", "libcupti.so", "/usr/local/cuda/lib64/libcupti.so",
                             "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"}) {
      if (handle == nullptr) handle = dlopen(path, RTLD_NOW);
    }
    return handle != nullptr && find(register_callbacks, "cuptiActivityRegisterCallbacks") &&
           find(enable, "cuptiActivityEnable") && find(disable, "cuptiActivityDisable") &&
           find(flush_all, "cuptiActivityFlushAll") && find(g_next_record, "cuptiActivityGetNextRecord");
  }

  template <class Function>
  bool find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(dlsym(handle, symbol));
    return function != nullptr;
  }
};

KernelRecorder::KernelRecorder(std::unique_ptr<Library> library) : library_(std::move(library)) {}

/// The library stays loaded: CUPTI has hooks in the driver.
KernelRecorder::~KernelRecorder() = default;

std::unique_ptr<KernelRecorder> KernelRecorder::open() {
  auto library = std::make_unique<Library>();
  if (!library->load() || library->register_callbacks(give_buffer, take_buffer) != CUPTI_SUCCESS) {
    return nullptr;
  }
  return std::unique_ptr<KernelRecorder>(new KernelRecorder(std::move(library)));
}

void KernelRecorder::start() {
  if (library_->enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
    throw std::runtime_error("CUPTI does not record kernels");
  }
  const std::lock_guard lock(g_mutex);
  g_records.clear();
}

std::vector<KernelRecord> KernelRecorder::stop() {
  if (library_->flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != CUPTI_SUCCESS ||
      library_->disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
    throw std::runtime_error("CUPTI does not hand over its records");
  }
  const std::lock_guard lock(g_mutex);
  std::ranges::stable_sort(g_records, {}, &KernelRecord::begin_ns);
  return std::move(g_records);
}

}  // namespace minfer::test
