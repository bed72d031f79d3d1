#include "profiling/ceilings.h"

#include <algorithm>

namespace minfer {

double Ceilings::floor_us(int64_t bytes, int64_t flops) const {
  if (!known()) return 0.0;
  return std::max(static_cast<double>(bytes) / read_gbps, static_cast<double>(flops) / gflops) * 1e-3;
}

bool Ceilings::compute_bound(int64_t bytes, int64_t flops) const {
  return known() && static_cast<double>(flops) / gflops > static_cast<double>(bytes) / read_gbps;
}

}  // namespace minfer
