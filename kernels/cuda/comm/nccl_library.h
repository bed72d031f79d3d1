#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

#include "kernels/comm/rank.h"
#include "kernels/dtype.h"

namespace minfer::cuda {

/// The functions of libnccl.so.2 that the project uses, declared as in NCCL 2: the program is built without it and runs without it.
class NcclLibrary {
 public:
  using Comm = struct NcclCommOpaque*;
  struct UniqueId {
    char internal[128];
  };

  /// Null if there is none; `error` then says why. Turns multicast over NVLink off (NCCL_NVLS_ENABLE=0). The library stays loaded.
  static std::unique_ptr<NcclLibrary> load(std::string& error);

  /// Throws DeviceError with NCCL's text and its last error, unless `result` is success.
  void check(int result, const char* what) const;

  /// E.g. "2.21.5".
  std::string version() const;

  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(UniqueId*) = nullptr;
  int (*init_rank)(Comm*, int, UniqueId, int) = nullptr;
  int (*abort)(Comm) = nullptr;
  int (*destroy)(Comm) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int, int, Comm, cudaStream_t) = nullptr;
  int (*broadcast)(const void*, void*, size_t, int, int, Comm, cudaStream_t) = nullptr;
  int (*send)(const void*, size_t, int, int, Comm, cudaStream_t) = nullptr;
  int (*receive)(void*, size_t, int, int, Comm, cudaStream_t) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;

 private:
  const char* (*error_string_)(int) = nullptr;
  const char* (*last_error_)(Comm) = nullptr;
};

/// A rank's communicator. Made on the rank's thread, by all ranks at the same time.
class NcclComm {
 public:
  /// `library` must live longer.
  NcclComm(const NcclLibrary& library, Rank rank, const NcclLibrary::UniqueId& id);
  /// Waits for its own work, and may wait until the other ranks end theirs; not after abort().
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// values = the sum over ranks, in place; f32 or bf16.
  void all_reduce(void* values, size_t count, DType dtype, cudaStream_t stream);
  /// Ranks 1, 2, ... send `part` [count] f32; the first rank gets the parts one after the other in `others`.
  void gather(const float* part, size_t count, float* others, cudaStream_t stream);
  /// values = the first rank's, in every rank.
  void broadcast(int32_t* values, size_t count, cudaStream_t stream);
  /// Ends the device's work for it. No other function may be called afterwards.
  void abort();

 private:
  const NcclLibrary& library_;
  Rank rank_;
  NcclLibrary::Comm comm_ = nullptr;
};

}  // namespace minfer::cuda
