#include <limits>

#include "kernels/base/clock.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/device_clock.h"

namespace minfer::cuda {
namespace {

constexpr int kRounds = 20;
constexpr unsigned long long kGiveUpNs = 100'000'000;

/// The memory through which host and device exchange times.
struct Handshake {
  volatile unsigned long long asked;     ///< round, by the host
  volatile unsigned long long answered;  ///< round, by the device
  volatile unsigned long long time_ns;   ///< of the answer
};

__device__ unsigned long long global_timer() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void answer_rounds(Handshake* handshake) {
  const unsigned long long begin = global_timer();
  for (unsigned long long round = 1; round <= kRounds; ++round) {
    while (handshake->asked < round) {
      if (global_timer() - begin > kGiveUpNs) return;
    }
    handshake->time_ns = global_timer();
    __threadfence_system();
    handshake->answered = round;
  }
}

}  // namespace

DeviceClock::DeviceClock(cudaStream_t stream) {
  const PinnedBuffer memory(sizeof(Handshake), "clock handshake");
  auto* handshake = memory.as<Handshake>();
  answer_rounds<<<1, 1, 0, stream>>>(handshake);
  check(cudaGetLastError(), "launch of the clock handshake");
  int64_t shortest_ns = std::numeric_limits<int64_t>::max();
  for (unsigned long long round = 1; round <= kRounds; ++round) {
    const int64_t asked_ns = now_ns();
    handshake->asked = round;
    while (handshake->answered < round) {
      if (cudaStreamQuery(stream) != cudaErrorNotReady) break;
    }
    const int64_t answered_ns = now_ns();
    if (handshake->answered < round) break;
    if (answered_ns - asked_ns < shortest_ns) {
      shortest_ns = answered_ns - asked_ns;
      offset_ns_ = asked_ns + shortest_ns / 2 - static_cast<int64_t>(handshake->time_ns);
    }
  }
  check(cudaStreamSynchronize(stream), "clock handshake");
  if (shortest_ns == std::numeric_limits<int64_t>::max()) {
    throw DeviceError("CUDA: the device did not answer the clock handshake");
  }
}

void DeviceClock::observe(int64_t launch_ns, uint64_t device_begin_ns, uint64_t device_end_ns,
                          int64_t seen_ns) {
  if (host_ns(device_begin_ns) < launch_ns) offset_ns_ += launch_ns - host_ns(device_begin_ns);
  if (host_ns(device_end_ns) > seen_ns) offset_ns_ -= host_ns(device_end_ns) - seen_ns;
}

}  // namespace minfer::cuda
