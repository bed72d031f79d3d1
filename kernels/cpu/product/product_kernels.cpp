#include "kernels/cpu/product/product_kernels.h"

#include "kernels/cpu/product/linear.h"

namespace minfer::cpu {

const ProductKernels& product_kernels(Isa isa) {
  if (isa == Isa::portable) return kPortableProductKernels;
  return isa == Isa::avx2 ? kAvx2ProductKernels : kAvx512ProductKernels;
}

void dequantise_row(const void* row, DType dtype, int64_t cols, Isa isa, float* out) {
  row_bytes(dtype, cols);  // throws unless the row is whole blocks
  product_kernels(isa).of(dtype).dequantise(static_cast<const std::byte*>(row), cols, out);
}

}  // namespace minfer::cpu
