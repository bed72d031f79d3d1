#pragma once

#include "kernels/base/thread_pool.h"
#include "kernels/cpu/lanes/isa.h"
#include "kernels/quant_types.h"
#include "kernels/tensor_view.h"

namespace minfer::cpu {

/// Rows of f32, f16 or bf16 elements -> fp8 with a scale a row (kernels/fp8.h), which each of its blocks repeats; behind the last
/// element a row is zeros. out: count * rows times row_bytes(DType::fp8, cols). On all threads of the pool. Throws Error for other
/// types. What other backends make of the same weights is the same in every bit.
void quantise_to_fp8(const HostTensor& tensor, Isa isa, ThreadPool& pool, BlockFp8* out);

}  // namespace minfer::cpu
