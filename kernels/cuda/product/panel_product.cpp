#include "kernels/cuda/product/panel_product.h"

#include "kernels/cuda/product/panel/panel_kernels.h"
#include "kernels/cuda/weights/weight_layout.h"

namespace minfer::cuda {

PanelWorkspace::PanelWorkspace(int32_t num_sms, int64_t most_cols)
    : max_cols(most_cols),
      partials(static_cast<size_t>(num_sms) * kPartialBytesOfSm, "partial sums of products"),
      arrivals(DeviceBuffer::zeros(static_cast<size_t>(num_sms) * kArrivalsOfSm * sizeof(unsigned),
                                   "arrivals of partial sums")) {}

int32_t max_panel_tokens(DType type) {
  if (is_rare(type)) return 1;
  return is_tiled(type) || type == DType::bf16 ? kPanelTokens : 0;
}

void panel_product(Launch& launch, DType type, const PanelArgs& args) {
  if (type == DType::bf16) {
    bf16_panel_product(launch, args);
  } else if (args.tokens == 1) {
    tile_vector_product(launch, type, args);
  } else {
    tile_panel_product(launch, type, args);
  }
}

}  // namespace minfer::cuda
