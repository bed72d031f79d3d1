#include "kernels/cuda/product/operands/product_args.h"
#include "kernels/cuda/product/strip/strip_kernels.h"

namespace minfer::cuda {

ProductWorkspace::ProductWorkspace(int32_t num_sms)
    : partials(static_cast<size_t>(num_sms) * kPartialBytesOfSm, "partial sums of products"),
      arrivals(DeviceBuffer::zeros(static_cast<size_t>(num_sms) * kArrivalsOfSm * sizeof(unsigned),
                                   "arrivals of partial sums")) {}

void strip_product(Launch& launch, DType type, const ProductArgs& args) {
  if (type == DType::bf16) {
    bf16_strip_product(launch, args);
  } else if (args.tokens == 1) {
    tile_vector_product(launch, type, args);
  } else {
    tile_strip_product(launch, type, args);
  }
}

}  // namespace minfer::cuda
