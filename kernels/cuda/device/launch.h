#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/launch_log.h"

/// How every kernel of the project is launched and how it begins.
///
/// Kernels are launched with programmatic dependent launch (PDL): a kernel may start before the one in front
/// of it in the stream has ended. So every thread of every kernel calls begin_kernel() before it touches what
/// the kernel in front of it writes or reads, and no thread leaves a kernel without having called it: that
/// keeps "my predecessor has ended" transitive. allow_next_kernel() lets the next kernel's blocks be placed
/// as this one's drain.
///
/// Before begin_kernel() a kernel may read weights, and what was written so early in the step that it must be
/// complete. allow_next_kernel() before begin_kernel() lets whole chains of kernels wait at once; a kernel
/// that calls it after begin_kernel() ends such a chain: when its successor starts, everything in front of it
/// is complete. step_inputs, rms_norm and attention do that, so the step's inputs are complete for every
/// kernel behind the first norm.
namespace minfer::cuda {

/// Where a kernel stores the time at which it began: entry `index` of the current step's row of the stamp
/// ring. The row changes from step to step while graphs replay, so its address is read from device memory.
struct Stamp {
  unsigned long long* const* row = nullptr;  ///< device memory; null: no stamp
  int32_t index = 0;
};

#ifdef __CUDACC__

/// Waits until the kernels before have ended and their writes are visible, then stamps. All threads, once.
__device__ __forceinline__ void begin_kernel(const Stamp& stamp) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (stamp.row != nullptr && threadIdx.x == 0 && threadIdx.y == 0 &&
      (blockIdx.x | blockIdx.y | blockIdx.z) == 0) {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    (*stamp.row)[stamp.index] = now;
  }
}

/// Any thread, any number of times; takes effect when every block has called it or ended.
__device__ __forceinline__ void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif  // __CUDACC__

/// The launches of one op. The first kernel carries the op's stamp, the others none. All of them are noted in `log`, if there is
/// one.
class Launch {
 public:
  Launch(cudaStream_t stream, int32_t num_sms, Stamp stamp = {}, LaunchLog* log = nullptr)
      : stream_(stream), num_sms_(num_sms), stamp_(stamp), log_(log) {}

  cudaStream_t stream() const { return stream_; }
  int32_t num_sms() const { return num_sms_; }
  /// Where launches that are not made here are to be noted; null: nowhere.
  LaunchLog* log() const { return log_; }
  /// Whether the op is to be stamped, and no kernel has the stamp yet.
  bool has_stamp() const { return stamp_.row != nullptr; }
  /// The op's stamp for the first caller, none for later ones.
  Stamp take_stamp() {
    const Stamp taken = stamp_;
    stamp_ = {};
    return taken;
  }

  /// Launches `kernel`, whose last parameter is a Stamp, and checks the launch.
  template <class... Params, class... Args>
  void operator()(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                  Args... args) {
    if (shared_bytes > kSharedBytesWithoutAsking) {
      check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
            name);
    }
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_;
    config.attrs = &attribute;
    config.numAttrs = 1;
    check(cudaLaunchKernelEx(&config, kernel, args..., take_stamp()), name);
    if (log_ != nullptr) log_->add(name, reinterpret_cast<const void*>(kernel), grid, block, shared_bytes);
  }

 private:
  static constexpr size_t kSharedBytesWithoutAsking = 48 << 10;

  cudaStream_t stream_;
  int32_t num_sms_;
  Stamp stamp_;
  LaunchLog* log_;
};

}  // namespace minfer::cuda
