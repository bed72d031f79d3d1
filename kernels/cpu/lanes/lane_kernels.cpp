#include "kernels/cpu/lanes/lane_kernels.h"

namespace minfer::cpu {

const LaneKernels& lane_kernels(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return kLaneKernelsAvx512;
    case Isa::avx2:
      return kLaneKernelsAvx2;
    case Isa::portable:
      break;
  }
  return kLaneKernelsPortable;
}

}  // namespace minfer::cpu
