#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/backend.h"
#include "kernels/cpu/workspace.h"

/// The weight products of the CPU backend. Activations and sums are f32; weights stay in their GGUF type and
/// are read once an op, whatever the number of tokens. Shapes are checked: a mismatch throws Error.
///
/// The bits of an output element depend on its weight row and its token alone, not on the other tokens, the
/// number of threads or the instruction set (but see isa_name()). For that every product sums in one order:
/// within each 1,024 columns lane j of 16 accumulates columns k = j mod 16 in ascending order with a fused
/// multiply-add of x[k] and the weight's exact f32 value; the lanes are folded 8, 4, 2, 1; the sums of the
/// column blocks are added in ascending order.
namespace minfer::cpu {

/// See LinearArgs. Element: sum, + bias if given, + old out if add_to_out.
void linear(const LinearArgs& args, int32_t threads, Workspace& workspace);
/// See GateUpArgs.
void gate_up_swiglu(const GateUpArgs& args, int32_t threads, Workspace& workspace);
/// See MoeGateUpArgs. Tokens are grouped by expert; each expert that any token chose is read once.
void moe_gate_up_swiglu(const MoeGateUpArgs& args, int32_t threads, Workspace& workspace);
/// See MoeDownArgs. As above; the experts of a token are added in rank order.
void moe_down(const MoeDownArgs& args, int32_t threads, Workspace& workspace);

/// The f32 values of a weight row of `cols` elements, exactly as the products above use them.
void dequantise_row(const void* row, DType dtype, int64_t cols, float* out);

/// The instruction set in use, chosen at the first call: "avx512", "avx2" or "portable". The environment
/// variable MINFER_CPU_ISA forces one of them and is an Error if this machine lacks it. The first two give
/// the same bits; portable code does where the compiler has a hardware multiply-add, else it rounds products
/// before it adds them.
std::string_view isa_name();

}  // namespace minfer::cpu
