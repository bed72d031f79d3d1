#include "kernels/cuda/moe/expert_panel.cuh"

namespace minfer::cuda {

int64_t panel_shared_bytes() {
  return kPanelSharedBytes;
}

}  // namespace minfer::cuda
