#include "profiling/host/host_sampler.h"

#include <system_error>
#include <utility>

#include "kernels/thread_pool.h"

namespace minfer {

HostSampler::HostSampler(std::function<int32_t()> engine_thread)
    : engine_thread_(std::move(engine_thread)), cores_(num_cores()), last_(reader_.read(engine_thread_())) {
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error&) {  // a profile is worth having without
  }
}

std::vector<HostSample> HostSampler::after(int64_t time_ns) const {
  const std::lock_guard lock(mutex_);
  auto first = samples_.end();
  while (first != samples_.begin() && std::prev(first)->end_ns > time_ns)
    --first;
  return {first, samples_.end()};
}

void HostSampler::sample_now() {
  const std::lock_guard lock(mutex_);
  HostCounters now = reader_.read(engine_thread_());
  samples_.push_back(between(last_, now, cores_));
  if (samples_.size() > kMost) samples_.pop_front();
  last_ = std::move(now);
}

void HostSampler::run(const std::stop_token& stop) {
  std::mutex sleep;
  for (;;) {
    {
      std::unique_lock lock(sleep);
      wake_.wait_for(lock, stop, kInterval, [] { return false; });
    }
    if (stop.stop_requested()) return;
    sample_now();
  }
}

}  // namespace minfer
