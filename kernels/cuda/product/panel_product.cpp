#include "kernels/cuda/product/panel_product.h"

#include <algorithm>

#include "kernels/cuda/product/panel/panel_kernels.h"
#include "kernels/cuda/weights/weight_layout.h"

namespace minfer::cuda {
namespace {

/// Up to here a step of Llama-3.1-8B on an H200 is faster than with dequantised rows and cuBLASLt: with 64
/// and 128 tokens 7.1 and 11.7 ms against 11.6 and 12.5 ms in q4_k, 8.4 and 14.2 against 12.4 and 13.3 in
/// q8_0. bf16 takes cuBLASLt from 9 tokens on.
constexpr int32_t kFourBitTokens = 128;
constexpr int32_t kMoreBitsTokens = 64;
/// Thread blocks of a product with more tokens that are on an SM together, each with f32 sums of 128 rows and 128 tokens, and the most
/// into which K is divided.
constexpr int32_t kBlocksPerSm = 2;
static_assert(kBlocksPerSm * 128 * 128 * sizeof(float) <= kPartialBytesOfSm && kBlocksPerSm <= kArrivalsOfSm);
constexpr int64_t kMaxSplits = 8;
constexpr int64_t kBlockPanels = 8;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

PanelWorkspace::PanelWorkspace(int32_t num_sms, int64_t most_cols)
    : max_cols(most_cols),
      partials(static_cast<size_t>(num_sms) * kPartialBytesOfSm, "partial sums of products"),
      arrivals(DeviceBuffer::zeros(static_cast<size_t>(num_sms) * kArrivalsOfSm * sizeof(unsigned),
                                   "arrivals of partial sums")),
      x_sums(static_cast<size_t>(tiles_of(most_cols) * 8 * 2 * kFourBitTokens) * sizeof(uint16_t),
             "sums of activations") {}

BlockGrid block_grid(int64_t rows, int64_t cols, int64_t tokens, bool gate_up, int32_t num_sms,
                     int64_t most_token_tiles) {
  const int64_t token_tiles = std::min<int64_t>(tokens <= 32 ? 4 : 8, most_token_tiles);
  const int64_t token_blocks = ceil_div(tokens, 8 * token_tiles);
  const int64_t row_blocks = ceil_div(panels_of(rows), gate_up ? kBlockPanels / 2 : kBlockPanels);
  const int64_t fitting = int64_t{num_sms} * kBlocksPerSm / (token_blocks * row_blocks);
  const int64_t splits =
      std::clamp<int64_t>(std::min({fitting, tiles_of(cols) / 2, kMaxSplits}), 1, kMaxSplits);
  return {static_cast<int32_t>(token_tiles), static_cast<int32_t>(token_blocks),
          static_cast<int32_t>(row_blocks), static_cast<int32_t>(splits)};
}

int32_t max_panel_tokens(DType type) {
  if (is_rare(type)) return 1;
  if (type == DType::q4_0 || type == DType::q4_k || type == DType::mxfp4) return kFourBitTokens;
  if (is_tiled(type)) return kMoreBitsTokens;
  return type == DType::bf16 ? kPanelTokens : 0;
}

void panel_product(Launch& launch, DType type, const PanelArgs& args) {
  if (type == DType::bf16) {
    bf16_panel_product(launch, args);
  } else if (args.tokens == 1) {
    tile_vector_product(launch, type, args);
  } else if (args.tokens <= kPanelTokens) {
    tile_panel_product(launch, type, args);
  } else {
    tile_block_product(launch, type, args);
  }
}

}  // namespace minfer::cuda
