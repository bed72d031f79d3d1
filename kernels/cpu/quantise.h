#pragma once

#include "kernels/base/thread_pool.h"
#include "kernels/cpu/lanes/isa.h"
#include "kernels/quant_types.h"
#include "kernels/tensor_view.h"

namespace minfer::cpu {

/// Quantises rows of f32, f16 or bf16 elements to fp8 with one scale a row (kernels/fp8.h), which each block of the row repeats;
/// zeros fill the last block. out: count * rows times row_bytes(DType::fp8, cols). Uses all threads of the pool. Throws Error for
/// other types. Other backends get the same bits from the same weights.
void quantise_to_fp8(const HostTensor& tensor, Isa isa, ThreadPool& pool, BlockFp8* out);

}  // namespace minfer::cpu
