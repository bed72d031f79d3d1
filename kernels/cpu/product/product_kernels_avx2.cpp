#include "kernels/cpu/product/product_kernels_inl.h"

namespace minfer::cpu {

constexpr ProductKernels kAvx2ProductKernels = make_product_kernels();

}  // namespace minfer::cpu
