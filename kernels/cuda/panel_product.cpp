#include "kernels/cuda/panel_product.h"

#include <algorithm>

#include "kernels/cuda/panel_kernels.h"
#include "kernels/cuda/weight_layout.h"

namespace minfer::cuda {
namespace {

constexpr int32_t kPanelTokens = 8;
/// Thread blocks of a product with more tokens that are on an SM together, and the most into which K is
/// divided.
constexpr int32_t kBlocksPerSm = 2;
constexpr int64_t kMaxSplits = 8;
constexpr int64_t kBlockPanels = 8;
/// f32 sums of a block of 128 rows and 64 tokens.
constexpr size_t kPartialBytes = size_t{128} * 64 * sizeof(float);

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

PanelWorkspace::PanelWorkspace(int32_t num_sms)
    : partials(static_cast<size_t>(num_sms * kBlocksPerSm) * kPartialBytes, "partial sums of products"),
      arrivals(static_cast<size_t>(num_sms * kBlocksPerSm) * sizeof(unsigned), "arrivals of partial sums") {
  check(cudaMemset(arrivals.data(), 0, arrivals.bytes()), "arrivals of partial sums");
}

BlockGrid block_grid(int64_t rows, int64_t cols, int64_t tokens, bool gate_up, int32_t num_sms) {
  const int64_t token_tiles = tokens <= 32 ? 4 : 8;
  const int64_t token_blocks = ceil_div(tokens, 8 * token_tiles);
  const int64_t row_blocks = ceil_div(panels_of(rows), gate_up ? kBlockPanels / 2 : kBlockPanels);
  const int64_t fitting = int64_t{num_sms} * kBlocksPerSm / (token_blocks * row_blocks);
  const int64_t splits =
      std::clamp<int64_t>(std::min({fitting, tiles_of(cols) / 2, kMaxSplits}), 1, kMaxSplits);
  return {static_cast<int32_t>(token_tiles), static_cast<int32_t>(token_blocks),
          static_cast<int32_t>(row_blocks), static_cast<int32_t>(splits)};
}

int32_t max_panel_tokens(DType type) {
  if (is_tiled(type)) return 256;
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
