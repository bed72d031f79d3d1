#include "kernels/cuda/comm/nccl_library.h"

#include <cstdlib>

#include <dlfcn.h>

#include "kernels/base/error.h"

namespace minfer::cuda {
namespace {

// From nccl.h, the same in all of NCCL 2.
constexpr int kSuccess = 0;
constexpr int kInProgress = 7;
constexpr int kSum = 0;
constexpr int kInt32 = 2;
constexpr int kFloat32 = 7;
constexpr int kBfloat16 = 9;

}  // namespace

std::unique_ptr<NcclLibrary> NcclLibrary::load(std::string& error) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  void* handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    error = reason != nullptr ? reason : "libnccl.so.2 cannot be loaded";
    return nullptr;
  }
  auto library = std::make_unique<NcclLibrary>();
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (function == nullptr && error.empty()) error = fmt::format("libnccl.so.2 has no {}", symbol);
  };
  find(library->get_version, "ncclGetVersion");
  find(library->get_unique_id, "ncclGetUniqueId");
  find(library->init_rank, "ncclCommInitRank");
  find(library->abort, "ncclCommAbort");
  find(library->destroy, "ncclCommDestroy");
  find(library->all_reduce, "ncclAllReduce");
  find(library->broadcast, "ncclBroadcast");
  find(library->send, "ncclSend");
  find(library->receive, "ncclRecv");
  find(library->group_start, "ncclGroupStart");
  find(library->group_end, "ncclGroupEnd");
  find(library->error_string_, "ncclGetErrorString");
  if (!error.empty()) return nullptr;
  library->last_error_ =
      reinterpret_cast<const char* (*)(Comm)>(dlsym(handle, "ncclGetLastError"));  // since 2.13
  return library;
}

void NcclLibrary::check(int result, const char* what) const {
  if (result == kSuccess || result == kInProgress) return;
  const char* last = last_error_ != nullptr ? last_error_(nullptr) : nullptr;
  fail<DeviceError>("NCCL: {}: {}{}{}", what, error_string_(result),
                    last != nullptr && *last != '\0' ? ": " : "", last != nullptr ? last : "");
}

std::string NcclLibrary::version() const {
  int number = 0;
  check(get_version(&number), "asking for the version");
  // 2.9 and later; earlier versions have one digit fewer for the minor number.
  const int unit = number >= 20000 ? 10000 : 1000;
  return fmt::format("{}.{}.{}", number / unit, number % unit / 100, number % 100);
}

NcclComm::NcclComm(const NcclLibrary& library, Rank rank, const NcclLibrary::UniqueId& id)
    : library_(library), rank_(rank) {
  library_.check(library_.init_rank(&comm_, rank.count, id, rank.index), "joining the ranks");
}

NcclComm::~NcclComm() {
  if (comm_ != nullptr) library_.destroy(comm_);
}

void NcclComm::all_reduce(void* values, size_t count, DType dtype, cudaStream_t stream) {
  if (dtype != DType::f32 && dtype != DType::bf16)
    fail("all_reduce on CUDA: parts {}, expected f32 or bf16", name(dtype));
  library_.check(library_.all_reduce(values, values, count, dtype == DType::f32 ? kFloat32 : kBfloat16, kSum,
                                     comm_, stream),
                 "all-reduce");
}

void NcclComm::gather(const float* part, size_t count, float* others, cudaStream_t stream) {
  if (!rank_.is_first()) {
    return library_.check(library_.send(part, count, kFloat32, 0, comm_, stream), "sending columns");
  }
  library_.check(library_.group_start(), "a group");
  for (int32_t from = 1; from < rank_.count; ++from) {
    library_.check(library_.receive(others + static_cast<size_t>(from - 1) * count, count, kFloat32, from,
                                    comm_, stream),
                   "receiving columns");
  }
  library_.check(library_.group_end(), "receiving columns");
}

void NcclComm::broadcast(int32_t* values, size_t count, cudaStream_t stream) {
  library_.check(library_.broadcast(values, values, count, kInt32, 0, comm_, stream), "broadcast");
}

void NcclComm::abort() {
  if (comm_ != nullptr) library_.abort(comm_);
  comm_ = nullptr;
}

}  // namespace minfer::cuda
