#include "kernels/tuning/product_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/device/device_dtype.h"
#include "kernels/cuda/weights/weight_layout.h"

namespace minfer::cuda {
namespace {

constexpr std::array<std::pair<ProductKernel, std::string_view>, 9> kKernelNames{{
    {ProductKernel::automatic, "automatic"},
    {ProductKernel::panel, "panel"},
    {ProductKernel::tile_vector, "tile_vector"},
    {ProductKernel::tile_panel, "tile_panel"},
    {ProductKernel::tile_block, "tile_block"},
    {ProductKernel::stream, "stream"},
    {ProductKernel::tile_stream, "tile_stream"},
    {ProductKernel::cublaslt, "cublaslt"},
    {ProductKernel::dequantise, "dequantise"},
}};
constexpr std::array<std::pair<ProductOp, std::string_view>, 3> kOpNames{
    {{ProductOp::linear, "linear"}, {ProductOp::linear_add, "linear_add"}, {ProductOp::gate_up, "gate_up"}}};

constexpr int32_t kMostSplits = 4;
constexpr int64_t kPanelTokens = 8;
constexpr int64_t kBlockTokens = 128;   ///< for which tile_block has memory
constexpr int64_t kLeastStages = 2;     ///< of a tile's columns that a block of a cluster has
constexpr int64_t kFewTokens = 16;      ///< that writing all weights as bf16 cannot pay for
constexpr int64_t kMostRows = 1 << 30;  ///< and columns

template <class Key, size_t count>
std::string_view name_in(const std::array<std::pair<Key, std::string_view>, count>& names, Key key) {
  return std::ranges::find(names, key, &std::pair<Key, std::string_view>::first)->second;
}

template <class Key, size_t count>
std::optional<Key> key_in(const std::array<std::pair<Key, std::string_view>, count>& names,
                          std::string_view text) {
  const auto found = std::ranges::find(names, text, &std::pair<Key, std::string_view>::second);
  return found == names.end() ? std::nullopt : std::optional(found->first);
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

bool gates(const ProductShape& shape) {
  return shape.op == ProductOp::gate_up;
}

std::string refusal_of_tiles(const ProductPlan& plan, const ProductShape& shape, int64_t tokens,
                             const PlanDevice& device) {
  const bool is_stream = plan.kernel == ProductKernel::stream;
  const StreamPlan& t = plan.tiles;
  const bool is_largest = t.token_tile == kMostTokensOfTile;
  if (t.token_tile < 8 || t.token_tile > kMostTokensOfTile || (t.token_tile & (t.token_tile - 1)) != 0)
    return fmt::format("tiles of {} tokens, expected a power of two from 8 to {}", t.token_tile,
                       kMostTokensOfTile);
  if (t.warpgroups != 1 && t.warpgroups != 2)
    return fmt::format("tiles of {} rows, expected 64 or 128", t.warpgroups * kWarpgroupRows);
  if (t.warpgroups == 1 && is_largest) return "tiles of 64 rows, expected 128 with tiles of 256 tokens";
  if (t.warpgroups == 1 && is_stream && gates(shape)) return "tiles of 64 rows, expected 128 with gate_up";
  if (t.splits == 1) return "";
  if (t.splits < 1 || t.splits > kMostSplits)
    return fmt::format("{} splits, expected at most {}", t.splits, kMostSplits);
  if (is_largest) return "splits, expected none with tiles of 256 tokens";
  if (tokens > t.token_tile)
    return fmt::format("splits with {} tokens, expected no more than a tile's {}", tokens, t.token_tile);
  const int64_t stages = ceil_div(shape.cols, is_stream ? kStageColumns : kTileCols);
  if (stages < kLeastStages * t.splits)
    return fmt::format("{} splits of {} columns, expected some {} columns each", t.splits, shape.cols,
                       kLeastStages * (is_stream ? kStageColumns : kTileCols));
  if (row_tiles(shape.rows, gates(shape), t.warpgroups) * t.splits > device.multiprocessors)
    return fmt::format("{} splits of more tiles than fit on the device's {} multiprocessors", t.splits,
                       device.multiprocessors);
  return "";
}

/// All divisions of a product into tiles of so many tokens, whether or not they can be.
void add_divisions(ProductKernel kernel, int64_t token_tile, const ProductShape& shape, int64_t tokens,
                   const PlanDevice& device, std::vector<ProductPlan>& plans) {
  for (const int32_t warpgroups : {1, 2}) {
    ProductPlan plan{.kernel = kernel,
                     .tiles = {.token_tile = static_cast<int32_t>(token_tile), .warpgroups = warpgroups}};
    for (plan.tiles.splits = 1; plan.tiles.splits <= kMostSplits; ++plan.tiles.splits)
      plans.push_back(plan);
    plan.tiles.splits = 1;
    plan.tiles.by_rounds = true;
    // Where every block has one tile at most, rounds are a line.
    const int64_t tiles =
        row_tiles(shape.rows, gates(shape), plan.tiles.warpgroups) * ceil_div(tokens, token_tile);
    if (tiles > device.multiprocessors) plans.push_back(plan);
  }
}

}  // namespace

bool operator==(const ProductPlan& a, const ProductPlan& b) {
  return a.kernel == b.kernel &&
         (!a.has_tiles() ||
          (a.tiles.token_tile == b.tiles.token_tile && a.tiles.warpgroups == b.tiles.warpgroups &&
           a.tiles.splits == b.tiles.splits && a.tiles.by_rounds == b.tiles.by_rounds));
}

PlanDevice plan_device(const CudaDevice& device) {
  return {.name = device.name,
          .major = device.major,
          .minor = device.minor,
          .multiprocessors = device.multiprocessors};
}

std::string to_string(const PlanDevice& device) {
  return fmt::format("{} (sm_{}{}, {} multiprocessors)", device.name, device.major, device.minor,
                     device.multiprocessors);
}

std::string_view name(ProductOp op) {
  return name_in(kOpNames, op);
}

std::optional<ProductOp> product_op_from_name(std::string_view text) {
  return key_in(kOpNames, text);
}

std::string to_string(const ProductPlan& plan) {
  const std::string_view kernel = name_in(kKernelNames, plan.kernel);
  if (!plan.has_tiles()) return std::string(kernel);
  const StreamPlan& t = plan.tiles;
  const std::string division = t.by_rounds ? "rounds" : t.splits == 1 ? "line" : std::to_string(t.splits);
  return fmt::format("{}:{}x{}/{}", kernel, t.token_tile, t.warpgroups * kWarpgroupRows, division);
}

std::optional<ProductPlan> product_plan_from(std::string_view text) {
  const size_t colon = text.find(':');
  const std::optional<ProductKernel> kernel = key_in(kKernelNames, text.substr(0, colon));
  if (!kernel) return std::nullopt;
  ProductPlan plan{.kernel = *kernel, .tiles = {}};
  if (plan.has_tiles() != (colon != std::string_view::npos)) return std::nullopt;
  if (!plan.has_tiles()) return plan;
  const char *at = text.data() + colon + 1, *const end = text.data() + text.size();
  const auto take_number = [&](int32_t& number) {
    const auto [next, error] = std::from_chars(at, end, number);
    const bool is_number = error == std::errc() && number > 0;
    at = next;
    return is_number;
  };
  const auto take = [&](char expected) { return at != end && *at++ == expected; };
  int32_t rows = 0;
  if (!take_number(plan.tiles.token_tile) || !take('x') || !take_number(rows) || !take('/'))
    return std::nullopt;
  if (rows % kWarpgroupRows != 0) return std::nullopt;
  plan.tiles.warpgroups = rows / kWarpgroupRows;
  const std::string_view division(at, static_cast<size_t>(end - at));
  if (division == "line") return plan;
  plan.tiles.by_rounds = division == "rounds";
  if (plan.tiles.by_rounds) return plan;
  const bool is_split = take_number(plan.tiles.splits) && at == end && plan.tiles.splits > 1;
  return is_split ? std::optional(plan) : std::nullopt;
}

std::string refusal(const ProductPlan& plan, const ProductShape& shape, int64_t tokens,
                    const PlanDevice& device) {
  if (shape.rows < 1 || shape.rows > kMostRows || shape.cols < 1 || shape.cols > kMostRows)
    return fmt::format("a product of {} rows and {} columns, expected 1 to {}", shape.rows, shape.cols,
                       kMostRows);
  const auto takes = [&](std::string_view what, bool is_taken) {
    return is_taken ? "" : fmt::format("{} is for {}", name_in(kKernelNames, plan.kernel), what);
  };
  const bool is_bf16 = shape.type == DType::bf16, is_tiled_type = is_tiled(shape.type);
  const bool has_all_kernels = is_tiled_type && !is_rare(shape.type);
  switch (plan.kernel) {
    case ProductKernel::automatic:
      return "";
    case ProductKernel::panel:
      return takes("bf16, columns that divide by 8 and 1 to 8 tokens",
                   is_bf16 && shape.cols % 8 == 0 && tokens <= kPanelTokens);
    case ProductKernel::tile_vector:
      return takes("quantised types, columns that divide by 8 and one token",
                   is_tiled_type && shape.cols % 8 == 0 && tokens == 1);
    case ProductKernel::tile_panel:
      return takes("common quantised types, columns that divide by 8 and 2 to 8 tokens",
                   has_all_kernels && shape.cols % 8 == 0 && tokens > 1 && tokens <= kPanelTokens);
    case ProductKernel::tile_block:
      return takes("common quantised types, columns that divide by 8 and 2 to 128 tokens",
                   has_all_kernels && shape.cols % 8 == 0 && tokens > 1 && tokens <= kBlockTokens);
    case ProductKernel::cublaslt:
      return takes("bf16 and columns that divide by 8", is_bf16 && shape.cols % 8 == 0);
    case ProductKernel::dequantise:
      return takes("quantised types", is_tiled_type);
    case ProductKernel::stream:
      if (!is_bf16 || shape.rows % 8 != 0 || shape.cols % 8 != 0 || !device.is_hopper())
        return takes("bf16, rows and columns that divide by 8, and compute capability 9.0", false);
      return refusal_of_tiles(plan, shape, tokens, device);
    case ProductKernel::tile_stream:
      if (!is_tiled_type || shape.cols % kStageColumns != 0 || !device.is_hopper() ||
          shape.rows % (gates(shape) ? 2 * kPanelRows : 4) != 0)
        return takes(
            "quantised types, rows that divide by 4 (gate_up: 32), columns by 64, and compute capability 9.0",
            false);
      return refusal_of_tiles(plan, shape, tokens, device);
  }
  return "";
}

std::vector<ProductPlan> product_candidates(const ProductShape& shape, int64_t tokens,
                                            const PlanDevice& device) {
  std::vector<ProductPlan> all;
  for (const ProductKernel kernel :
       {ProductKernel::panel, ProductKernel::tile_vector, ProductKernel::tile_panel,
        ProductKernel::tile_block, ProductKernel::cublaslt, ProductKernel::dequantise}) {
    if (kernel != ProductKernel::dequantise || tokens >= kFewTokens)
      all.push_back({.kernel = kernel, .tiles = {}});
  }
  for (const ProductKernel kernel : {ProductKernel::stream, ProductKernel::tile_stream}) {
    const int64_t token_tile = smallest_token_tile(tokens, kMostTokensOfTile);
    add_divisions(kernel, token_tile, shape, tokens, device, all);
    if (token_tile > 8) add_divisions(kernel, token_tile / 2, shape, tokens, device, all);
  }
  std::erase_if(all, [&](const ProductPlan& plan) { return !refusal(plan, shape, tokens, device).empty(); });
  all.insert(all.begin(), ProductPlan{});
  return all;
}

StreamPlan stream_plan_of(const ProductPlan& plan, int64_t rows, int64_t tokens, bool gate_up,
                          int32_t multiprocessors) {
  StreamPlan tiles = plan.tiles;
  const int64_t count = row_tiles(rows, gate_up, tiles.warpgroups) * ceil_div(tokens, tiles.token_tile);
  if (tiles.by_rounds) {
    tiles.take_rounds(count, multiprocessors);
  } else {
    tiles.blocks = static_cast<int32_t>(tiles.splits > 1 ? count * tiles.splits
                                                         : std::min<int64_t>(count, multiprocessors));
  }
  return tiles;
}

}  // namespace minfer::cuda
