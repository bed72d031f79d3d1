#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace minfer::cuda {

/// Turns %globaltimer into the host's monotonic clock (now_ns()). Both count nanoseconds. A handshake through
/// page-locked memory measures their distance once, to about a microsecond. They may drift apart, so observe()
/// moves the distance whenever a step would have begun before its launch or ended after its end was seen. So
/// later errors are bounded by the latency of a launch.
class DeviceClock {
 public:
  /// Blocks for some 100 us.
  explicit DeviceClock(cudaStream_t stream);

  int64_t host_ns(uint64_t device_ns) const { return static_cast<int64_t>(device_ns) + offset_ns_; }
  /// A step launched at host time `launch_ns` stamped these device times. The host saw its end at
  /// `seen_ns`.
  void observe(int64_t launch_ns, uint64_t device_begin_ns, uint64_t device_end_ns, int64_t seen_ns);

 private:
  int64_t offset_ns_ = 0;  ///< host minus device
};

}  // namespace minfer::cuda
