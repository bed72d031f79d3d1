#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/counters.h"
#include "kernels/op.h"

namespace minfer {

/// A rank of an engine, as seen by the reader of its device's hardware counters.
struct RankCounters {
  int32_t rank = 0;
  CounterSampler* sampler = nullptr;  ///< not owned; null: nothing reads them
  std::vector<OpInfo> ops = {};       ///< the rank's, by OpId
  std::string missing = {};           ///< why there is no sampler; empty: the backend has none
};

}  // namespace minfer
