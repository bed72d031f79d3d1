#include "kernels/counters.h"

#include <algorithm>
#include <array>

namespace minfer {

std::string_view name(Counter counter) {
  static constexpr std::array<std::string_view, kAllCounters.size()> kNames{
      "dram_read_bytes", "dram_written_bytes",    "sm_active",
      "tensor_active",   "warps_active",          "l2_throughput",
      "l2_hit",          "nvlink_received_bytes", "nvlink_sent_bytes"};
  return kNames[static_cast<size_t>(counter)];
}

bool counts_bytes(Counter counter) {
  return counter == Counter::dram_read_bytes || counter == Counter::dram_written_bytes ||
         counter == Counter::nvlink_received_bytes || counter == Counter::nvlink_sent_bytes;
}

std::string_view name(SampleClock clock) {
  return clock == SampleClock::device ? "device" : "fitted";
}

int CounterSamples::column(Counter counter) const {
  const auto found = std::ranges::find(counters, counter);
  return found == counters.end() ? -1 : static_cast<int>(found - counters.begin());
}

}  // namespace minfer
