#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/launch/launch_log.h"

/// How every kernel of the project is launched, and how it begins.
///
/// Kernels are launched with programmatic dependent launch (PDL), if the device has it (compute capability 9.0
/// and later): a kernel may start before the kernel in front of it in the stream has ended. So every thread of
/// every kernel calls begin_kernel() before it touches data that the kernel in front writes or reads. No thread
/// leaves a kernel without that call: this keeps "my predecessor has ended" transitive. allow_next_kernel()
/// lets the next kernel's blocks be placed as this kernel's blocks drain.
///
/// Before begin_kernel() a kernel may read weights, and data written so early in the step that it must be
/// complete. allow_next_kernel() before begin_kernel() lets whole chains of kernels wait at once. A kernel that
/// calls it after begin_kernel() ends such a chain: when its successor starts, everything in front of it is
/// complete. step_inputs, embed, rms_norm and attention do that, so the step's inputs are complete for every
/// kernel behind embed.
namespace minfer::cuda {

/// Device memory in which a kernel's first block stores the time at which it began; null: nowhere.
struct Stamp {
  unsigned long long* begin = nullptr;
};
/// For kernels that stamp their end as well: those in front of a library's kernel, which stamps nothing, or of
/// a kernel that reads far ahead and so stamps late.
struct Stamps : Stamp {
  unsigned long long* end = nullptr;  ///< from the block that stores last, in the last kernel that gets it
};

#ifdef __CUDACC__

/// The device's clock, nanoseconds.
__device__ __forceinline__ unsigned long long global_timer() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

/// Waits until the kernels before have ended and their writes are visible, then stamps. All threads call it, once. The stamping thread
/// has its own wait instruction. Its text differs, so that the compiler cannot merge the two waits and test for the stamp after them.
__device__ __forceinline__ void begin_kernel(const Stamp& stamp) {
  const bool is_first = threadIdx.x == 0 && threadIdx.y == 0 && (blockIdx.x | blockIdx.y | blockIdx.z) == 0;
  unsigned long long* const to = is_first ? stamp.begin : nullptr;
  if (to == nullptr) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    return;
  }
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;  // of the thread that stamps" ::: "memory");
#endif
  *to = global_timer();
}

/// Stamps the kernel's end when it goes out of scope. It is a local variable of the kernel, which may leave by any of
/// its returns. Every block stores to the same entry, and the last store stays: off by the time that one store may take
/// longer than another. An atomic maximum would be exact, but the next kernel waits for it: 200 ns a kernel on an H200.
class EndStamp {
 public:
  __device__ __forceinline__ explicit EndStamp(const Stamps& stamps) : end_(stamps.end) {}
  __device__ __forceinline__ ~EndStamp() {
    if (end_ == nullptr || threadIdx.x != 0 || threadIdx.y != 0) return;
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(end_), "l"(global_timer()) : "memory");
  }
  EndStamp(const EndStamp&) = delete;
  EndStamp& operator=(const EndStamp&) = delete;

 private:
  unsigned long long* const end_;
};

/// Any thread, any number of times. Takes effect when every block has called it or ended.
__device__ __forceinline__ void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif  // __CUDACC__

/// The launches of one op. The first kernel stamps the op's begin, and kernels that take Stamps stamp its end.
/// `log`, if there is one, notes all of them.
class Launch {
 public:
  /// `begins_with_front`: the end of the op in front may serve as the begin, if the begin would need a kernel of its own.
  Launch(cudaStream_t stream, int32_t num_sms, Stamps stamps = {}, LaunchLog* log = nullptr,
         bool begins_with_front = false)
      : stream_(stream),
        num_sms_(num_sms),
        stamps_(stamps),
        log_(log),
        begins_with_front_(begins_with_front) {}

  cudaStream_t stream() const { return stream_; }
  int32_t num_sms() const { return num_sms_; }
  /// The log for launches that are not made here; null: none.
  LaunchLog* log() const { return log_; }
  /// True if the op's begin still needs a stamp before a library's kernel, which cannot stamp, runs as the first.
  bool needs_stamp_of_its_own() const { return stamps_.begin != nullptr && !begins_with_front_; }
  /// Call it after a library has launched a kernel.
  void library_launched() {
    stamps_.begin = nullptr;
    ends_with_stamp_ = false;
  }
  /// True if a kernel has stamped the op's begin.
  bool began_with_stamp() const { return began_with_stamp_; }
  /// True if the last kernel so far stamps the op's end.
  bool ends_with_stamp() const { return ends_with_stamp_; }

  /// The next launch has up to `bytes` of weights or cached keys in flight before begin_kernel().
  Launch& reads_ahead(int64_t bytes) {
    reads_ahead_bytes_ = bytes;
    return *this;
  }
  /// The next launch has clusters of `blocks` consecutive blocks.
  Launch& in_clusters(int32_t blocks) {
    cluster_blocks_ = static_cast<unsigned>(blocks);
    return *this;
  }
  /// Launches `kernel`, whose last parameter is a Stamp or Stamps, and checks the launch.
  template <class... Params, class... Args>
  void operator()(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                  Args... args) {
    if (shared_bytes > kSharedBytesWithoutAsking) {
      check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
            name);
    }
    cudaLaunchAttribute attributes[2]{};
    unsigned num_attributes = 0;
    if (launches_start_early()) {
      cudaLaunchAttribute& early = attributes[num_attributes++];
      early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      early.val.programmaticStreamSerializationAllowed = 1;
    }
    if (const unsigned cluster_blocks = std::exchange(cluster_blocks_, 1u); cluster_blocks > 1) {
      cudaLaunchAttribute& clusters = attributes[num_attributes++];
      clusters.id = cudaLaunchAttributeClusterDimension;
      clusters.val.clusterDim = {cluster_blocks, 1, 1};
    }
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_;
    config.attrs = attributes;
    config.numAttrs = num_attributes;
    using Given = std::tuple_element_t<sizeof...(Params) - 1, std::tuple<Params...>>;
    check(cudaLaunchKernelEx(&config, kernel, args..., static_cast<const Given&>(stamps_)), name);
    began_with_stamp_ = began_with_stamp_ || stamps_.begin != nullptr;
    ends_with_stamp_ = std::is_same_v<Given, Stamps> && stamps_.end != nullptr;
    stamps_.begin = nullptr;
    const int64_t reads_ahead_bytes = std::exchange(reads_ahead_bytes_, 0);
    if (log_ != nullptr)
      log_->add(name, reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, reads_ahead_bytes);
  }

 private:
  static constexpr size_t kSharedBytesWithoutAsking = 48 << 10;

  cudaStream_t stream_;
  int32_t num_sms_;
  Stamps stamps_;
  LaunchLog* log_;
  bool begins_with_front_;
  bool began_with_stamp_ = false;
  bool ends_with_stamp_ = false;
  int64_t reads_ahead_bytes_ = 0;  ///< of the next launch
  unsigned cluster_blocks_ = 1;    ///< of the next launch
};

}  // namespace minfer::cuda
