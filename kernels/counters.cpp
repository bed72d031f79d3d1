#include "kernels/counters.h"

#include <algorithm>

namespace minfer {

std::string_view name(Counter counter) {
  switch (counter) {
    case Counter::dram_read_bytes:
      return "dram_read_bytes";
    case Counter::dram_written_bytes:
      return "dram_written_bytes";
    case Counter::sm_active:
      return "sm_active";
    case Counter::tensor_active:
      return "tensor_active";
    case Counter::warps_active:
      return "warps_active";
    case Counter::l2_throughput:
      return "l2_throughput";
    case Counter::l2_hit:
      return "l2_hit";
    case Counter::nvlink_received_bytes:
      return "nvlink_received_bytes";
    case Counter::nvlink_sent_bytes:
      return "nvlink_sent_bytes";
  }
  return "unknown";
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
