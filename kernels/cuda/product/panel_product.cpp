#include "kernels/cuda/product/panel_product.h"

#include "kernels/cuda/product/panel/panel_kernels.h"

namespace minfer::cuda {

PanelWorkspace::PanelWorkspace(int32_t num_sms)
    : partials(static_cast<size_t>(num_sms) * kPartialBytesOfSm, "partial sums of products"),
      arrivals(DeviceBuffer::zeros(static_cast<size_t>(num_sms) * kArrivalsOfSm * sizeof(unsigned),
                                   "arrivals of partial sums")) {}

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
