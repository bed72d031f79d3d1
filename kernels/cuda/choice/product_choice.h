#pragma once

#include <span>

#include "kernels/cuda/device/block_shared.h"
#include "kernels/cuda/device/device_facts.h"
#include "kernels/tensor_view.h"

/// Chooses the kernel that computes a product with a weight: a pure function of types and sizes. The program's
/// run and `minfer inspect --plan` use the same function.
namespace minfer::cuda {

enum class ProductKernel : uint8_t {
  fp8_gemm,           ///< FP8 weights times FP8 activations, many tokens: fp8_gemm.cuh
  fp8_stream,         ///< the same for any number of tokens: fp8_stream.cuh
  strip,              ///< bf16 and quantised weights times up to kStripTokens tokens: strip_product()
  stream,             ///< bf16 weights times activations, on Hopper: stream_product.cuh
  tile_stream,        ///< quantised weights times activations, on Hopper: tile_stream.cuh
  split_product,      ///< f32 weights times many bf16 tokens, on tensor cores
  row_product,        ///< f32 arithmetic: f32 and f16 weights
  matmul,             ///< cuBLASLt
  f16_matmul,         ///< cuBLASLt with x as f16
  dequantise_matmul,  ///< to x's type by chunks of rows, then cuBLASLt
  apart,              ///< gate and up each as a product of its own, then the activation
};

/// out [tokens, rows] of x [tokens, cols]: the facts that the choice asks for.
struct ProductShape {
  DType weight = DType::bf16;
  DType up = DType::bf16;   ///< with gate_up
  DType x = DType::bf16;    ///< f32 with a norm in front, after which the product gets it as bf16
  DType out = DType::bf16;  ///< f32 if it adds
  int64_t rows = 0;         ///< of the output; with gate_up, of gate and of up each
  int64_t cols = 0;
  bool gate_up = false;
  bool adds = false;
  bool has_norm = false;  ///< FrontNorm
  // Addresses and distances of rows; a loaded model's have all of these properties:
  bool x_is_aligned = true;       ///< x to 16 bytes, its rows to eight elements
  bool out_is_aligned = true;     ///< out to four elements, its rows too, biases to 16 bytes
  bool out_takes_pieces = true;   ///< rows of out to 16 bytes
  bool weight_is_aligned = true;  ///< weights to 16 bytes
  bool up_is_behind = true;       ///< up's address is above gate's
};

/// The fastest kernel that takes the product, as measured on an H200. Throws Error if none does.
ProductKernel choose(const ProductShape& shape, int64_t tokens, const DeviceFacts& device);

/// See Target::takes_fp8(). True for FP8 weights that a kernel takes and, if attention writes x, heads of 128.
/// False for one token, which is faster with x in bf16.
bool takes_fp8(std::span<const Weight> weights, int64_t tokens, int32_t head_size, const DeviceFacts& device);
/// See Target::takes_norm(). True for one token and weights that strip_product() has a kernel with a norm for.
bool takes_norm(std::span<const Weight> weights, int64_t tokens, const DeviceFacts& device);

/// The most tokens of the kernels that multiply all tokens at once.
inline constexpr int32_t kStripTokens = 8;
/// Shared memory of the kernel that norms x of one token before bf16 weights, without x itself (bf16_strip.cu).
inline constexpr int64_t kBf16NormBytes = (kHasSmallBlocks ? 64 << 10 : 128 << 10) + (32 << 10) + 128;

}  // namespace minfer::cuda
