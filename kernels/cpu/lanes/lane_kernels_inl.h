#pragma once

#include "kernels/cpu/lanes/attention_lanes.h"
#include "kernels/cpu/lanes/delta_lanes.h"
#include "kernels/cpu/lanes/key_score_lanes.h"
#include "kernels/cpu/lanes/lane_kernels.h"
#include "kernels/cpu/lanes/mamba_lanes.h"
#include "kernels/cpu/lanes/row_lanes.h"

namespace minfer::cpu {
inline namespace MINFER_ISA {

constexpr LaneKernels make_lane_kernels() {
  return {rms_norm_row, exp_row,    weight_row, max_row,    attend,
          score_keys,   delta_conv, delta_rule, mamba_scan, gate_row};
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
