#include "kernels/cpu/lanes/lane_kernels.h"

namespace minfer::cpu {

const LaneKernels& lane_kernels(Isa isa) {
  if (isa == Isa::portable) return kLaneKernelsPortable;
  return isa == Isa::avx2 ? kLaneKernelsAvx2 : kLaneKernelsAvx512;
}

}  // namespace minfer::cpu
