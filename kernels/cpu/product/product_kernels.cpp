#include "kernels/cpu/product/product_kernels.h"

#include "kernels/cpu/product/linear.h"

namespace minfer::cpu {

const ProductKernels& product_kernels(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return kAvx512ProductKernels;
    case Isa::avx2:
      return kAvx2ProductKernels;
    case Isa::portable:
      break;
  }
  return kPortableProductKernels;
}

void dequantise_row(const void* row, DType dtype, int64_t cols, Isa isa, float* out) {
  row_bytes(dtype, cols);  // throws unless the row is whole blocks
  product_kernels(isa).of(dtype).dequantise(static_cast<const std::byte*>(row), cols, out);
}

}  // namespace minfer::cpu
