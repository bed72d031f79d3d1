#include "kernels/cpu/attention_lanes.h"
#include "kernels/cpu/lane_kernels.h"
#include "kernels/cpu/row_lanes.h"

namespace minfer::cpu {

const LaneKernels kLaneKernelsPortable{rms_norm_row, exp_row, max_row, attend};

}  // namespace minfer::cpu
