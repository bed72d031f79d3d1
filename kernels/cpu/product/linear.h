#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/context/op_context.h"
#include "kernels/quant_types.h"

/// The weight products of the CPU backend. Activations and sums are f32. Weights keep their GGUF type and
/// are read once an op, whatever the number of tokens. Shapes are checked: a mismatch throws Error.
///
/// The bits of an output element depend only on its weight row and its token: not on the other tokens, the
/// number of threads or the instruction set. So every product sums in one order. Within each 1,024 columns,
/// lane j of 16 accumulates columns k = j mod 16 in ascending order, with a fused multiply-add of x[k] and
/// the weight's f32 value; the lanes are folded 8, 4, 2, 1; the sums of the column blocks are added in
/// ascending order.
namespace minfer::cpu {

/// See LinearArgs. An element is the sum, + bias if given, + old out if add_to_out.
void linear(const LinearArgs& args, const OpContext& context);
/// See HeadLinearArgs.
void head_linear(const HeadLinearArgs& args, const OpContext& context);
/// See GateUpArgs.
void gate_up_swiglu(const GateUpArgs& args, const OpContext& context);
/// See MoeGateUpArgs. Tokens are grouped by expert. Each expert that any token chose is read once;
/// returns the number of these.
int32_t moe_gate_up_swiglu(const MoeGateUpArgs& args, const OpContext& context);
/// See MoeDownArgs. The same; the results of a token's experts are added in rank order.
int32_t moe_down(const MoeDownArgs& args, const OpContext& context);

/// The f32 values of a weight row of `cols` elements, exactly as the products above use them.
void dequantise_row(const void* row, DType dtype, int64_t cols, Isa isa, float* out);

/// Quantises rows of f32, f16 or bf16 elements to fp8 with one scale a row (kernels/fp8.h), which each block of the row repeats;
/// zeros fill the last block. out: count * rows times row_bytes(DType::fp8, cols). Uses all threads of the pool. Throws Error for
/// other types. Other backends get the same bits from the same weights.
void quantise_to_fp8(const HostTensor& tensor, Isa isa, ThreadPool& pool, BlockFp8* out);

}  // namespace minfer::cpu
