#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/stamps.h"
#include "kernels/work.h"

namespace minfer {

/// Parts of a step on the host, in the order they run. Together they cover the step's wall time.
enum class HostSpan : uint8_t { schedule, build, launch, wait, commit, detokenise, respond };
inline constexpr size_t kHostSpans = 7;
std::string_view name(HostSpan span);

enum class StepPhase : uint8_t { prefill, decode, mixed };
std::string_view name(StepPhase phase);

/// What the engine knows of a step, beside its times.
struct StepBatch {
  BatchShape shape;
  int32_t padded_tokens = 0;
  int32_t prefix_hit_tokens = 0;
  int32_t preempted = 0;
  int32_t kv_blocks_used = 0;
  int32_t kv_blocks_total = 0;
  int32_t waiting = 0;  ///< requests queued after scheduling

  StepPhase phase() const {
    if (shape.prefill_tokens == 0) return StepPhase::decode;
    return shape.decode_tokens == 0 ? StepPhase::prefill : StepPhase::mixed;
  }
};

/// One step as it was measured: what is kept in memory for every step. Filled on the engine thread without allocating
/// (vectors are reused); everything that can be computed later is (see step_summary.h).
struct StepRecord {
  int64_t step = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::array<int64_t, kHostSpans> host_ns{};  ///< time spent in each span; `launch` excludes ops on a synchronous backend
  StepStamps stamps;
  StepBatch batch;
  std::vector<std::string> requests;  ///< ids served, only while a profile file is written
};

}  // namespace minfer
