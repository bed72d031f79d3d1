#include "kernels/cuda/moe/moe_products.h"

#include <algorithm>

#include "kernels/bias.h"
#include "kernels/cuda/moe/expert_panel.h"
#include "kernels/cuda/moe/stream/expert_stream.h"
#include "kernels/cuda/product/panel_product.h"
#include "kernels/cuda/weights/weight_layout.h"
#include "kernels/error.h"

// Which kernels the products of experts take, over tokens in chunks that the scratch memory has room for.
namespace minfer::cuda {
namespace {

/// Down's products take this times 4 * hidden bytes: 64 MiB for 4,096. Enough routes that the experts' weights
/// are read seldom.
constexpr int64_t kMaxRoutes = 4096;
/// Of sorted activations, and of streamed products: 16,384 routes of 2,048 columns take half of it.
constexpr int64_t kMostSortedBytes = int64_t{128} << 20;

/// Rows [first, first + count) of a tensor.
Tensor rows_of(const Tensor& tensor, int64_t first, int64_t count) {
  Tensor result = tensor;
  result.data = static_cast<char*>(tensor.data) +
                static_cast<size_t>(first * tensor.stride) * traits(tensor.dtype).block_bytes;
  result.rows = count;
  return result;
}

MoeProduct product_of(const Weight& weight, const Weight& up, const Tensor& x, int32_t routes_per_x,
                      const Tensor& out, const int32_t* expert_ids) {
  return {.weight = weight.data,
          .up = up.data,
          .dtype = weight.dtype,
          .matrix_bytes = matrix_stride_bytes(weight.dtype, weight.rows, weight.cols),
          .rows = static_cast<int32_t>(weight.rows),
          .cols = static_cast<int32_t>(weight.cols),
          .x = x.data,
          .x_stride = x.stride,
          .routes_per_x = routes_per_x,
          .x_is_f32 = x.dtype == DType::f32,
          .out = out.data,
          .out_stride = out.stride,
          .out_is_f32 = out.dtype == DType::f32,
          .expert_ids = expert_ids,
          .num_routes = static_cast<int32_t>(x.rows * routes_per_x),
          .experts = static_cast<int32_t>(weight.count)};
}

void check_type(const char* what, const Tensor& tensor) {
  if (tensor.dtype == DType::f32 || tensor.dtype == DType::bf16) return;
  unsupported(what, "bf16 or f32", name(tensor.dtype));
}

/// Token tiles of eight routes that a block of the tensor-core kernels takes: 0 for those without.
int token_tiles(const MoeProduct& p) {
  const bool aligned = p.x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(p.x) % 16 == 0 && p.cols % 8 == 0;
  const bool has_kernels = p.dtype == DType::bf16 || (is_tiled(p.dtype) && expert_dtype(p.dtype) == p.dtype);
  if (p.x_is_f32 || !aligned || !has_kernels) return 0;
  return p.num_routes > 8 * p.experts ? 4 : 1;
}

/// Routes of a batch of expert_panel_product(); 0: it cannot be, or experts have more than five eighths of a batch in the mean, and
/// others are faster.
int32_t panel_routes(const MoeProduct& p) {
  const int32_t routes = token_tiles(p) > 0 ? expert_panel_routes(p.dtype, p.cols) : 0;
  return 8 * int64_t{p.num_routes} <= 5 * int64_t{routes} * p.experts ? routes : 0;
}

/// Few routes for the number of experts: hardly two have the same one.
bool multiplied_alone(const MoeProduct& p, int64_t tokens) {
  return token_tiles(p) > 0 && (tokens == 1 || 4 * p.num_routes <= p.experts);
}
void multiply_alone(Launch& launch, const MoeProduct& p) {
  p.dtype == DType::bf16 ? moe_bf16_vector_product(launch, p) : moe_vector_product(launch, p);
}

}  // namespace

MoeProducts::MoeProducts(const StepLimits& limits, bool has_wgmma) {
  if (limits.experts == 0) return;
  const auto routes_of = [&](int64_t most) {
    return std::clamp<int64_t>(most / limits.experts_used, 1, limits.max_tokens) * limits.experts_used;
  };
  max_routes_ = routes_of(kMaxRoutes);
  auto product_bytes = static_cast<size_t>(max_routes_ * limits.hidden_size) * sizeof(float);
  const int64_t streamed_row_bytes = limits.hidden_size * 2;
  const int64_t streamed =
      routes_of(std::min<int64_t>(kMostGroupedRoutes, kMostSortedBytes / streamed_row_bytes));
  if (has_wgmma && expert_token_tile(DType::bf16, streamed, limits.experts) > 0) {
    max_streamed_routes_ = streamed;
    product_bytes = std::max(product_bytes, static_cast<size_t>(streamed * streamed_row_bytes));
    const int64_t most_row_bytes = sorted_row_bytes(std::max(limits.hidden_size, limits.ffn_size));
    sorted_x_ = DeviceBuffer(static_cast<size_t>(std::min(streamed * most_row_bytes, kMostSortedBytes)),
                             "activations by expert");
  }
  most_batches_ = std::max(max_routes_, max_streamed_routes_);
  const auto routes = static_cast<size_t>(most_batches_);
  batches_ = DeviceBuffer(routes * sizeof(ExpertRoutes) + sizeof(BatchCounts), "batches of experts");
  routes_ = DeviceBuffer(routes * sizeof(int32_t), "routes by expert");
  products_ = DeviceBuffer(product_bytes, "products of experts");
}

MoeProducts::Chunk MoeProducts::next_chunk(const MoeProduct& rest, int64_t tokens,
                                           int32_t experts_used) const {
  const int64_t sorted_routes =
      std::min(max_streamed_routes_, static_cast<int64_t>(sorted_x_.bytes()) / sorted_row_bytes(rest.cols));
  const int64_t streamed = std::min(tokens, sorted_routes / experts_used);
  const int32_t tile = expert_token_tile(rest.dtype, streamed * experts_used, rest.experts);
  MoeProduct all = rest;
  all.num_routes = static_cast<int32_t>(streamed * experts_used);
  // One token is never grouped.
  if (streamed > 1 && tile > 0 && can_stream_experts(rest) && panel_routes(all) == 0) return {streamed, tile};
  if (experts_used > max_routes_) {
    fail("products of {} experts a token on CUDA: room for {}", experts_used, max_routes_);
  }
  return {std::min(tokens, max_routes_ / experts_used), 0};
}

void MoeProducts::multiply(Launch& launch, MoeProduct product, const Chunk& chunk, bool is_grouped) {
  const bool streams = chunk.token_tile > 0;
  if (!streams && multiplied_alone(product, chunk.tokens)) return multiply_alone(launch, product);
  const int tiles = token_tiles(product);
  const int32_t panels = streams || chunk.tokens == 1 ? 0 : panel_routes(product);
  if (chunk.tokens > 1) {  // the experts of one token are all different
    auto* batches = batches_.as<ExpertRoutes>();
    product.groups = {.batches = batches,
                      .num_batches = reinterpret_cast<BatchCounts*>(batches + most_batches_),
                      .routes = routes_.as<int32_t>(),
                      .batch_routes = streams      ? chunk.token_tile
                                      : panels > 0 ? panels
                                      : tiles > 0  ? 8 * tiles
                                                   : kRowBatchRoutes,
                      .turn_routes = panels > 0 ? kPanelTokens : 0};
    const Grouped wanted{product.expert_ids, product.num_routes, product.experts, product.groups.batch_routes,
                         product.groups.turn_routes};
    if (is_grouped && grouped_ == wanted) {
      product.groups.are_complete = true;
    } else {
      group_routes(launch, product.expert_ids, product.num_routes, product.experts, product.groups);
    }
    grouped_ = wanted;
  }
  if (streams) return expert_stream_product(launch, product, sorted_x_.data());
  const bool gate_up = product.up != nullptr;
  if (panels > 0) {
    gate_up ? expert_panel_product<2>(launch, product) : expert_panel_product<1>(launch, product);
  } else if (tiles > 0) {
    gate_up ? moe_panel_product<2>(launch, product, tiles) : moe_panel_product<1>(launch, product, tiles);
  } else {
    moe_row_product(launch, product);
  }
}

void MoeProducts::gate_up_swiglu(Launch& launch, const MoeGateUpArgs& args) {
  check_type("moe_gate_up_swiglu x", args.x);
  check_type("moe_gate_up_swiglu out", args.out);
  if (args.up.dtype != args.gate.dtype) {
    fail("moe_gate_up_swiglu on CUDA: gate {}, up {}, expected one type", name(args.gate.dtype),
         name(args.up.dtype));
  }
  require_equal("moe_gate_up_swiglu: columns of x", args.gate.cols, args.x.cols);
  require_equal("moe_gate_up_swiglu: rows of out", args.x.rows * args.experts_used, args.out.rows);
  require_equal("moe_gate_up_swiglu: columns of out", args.gate.rows, args.out.cols);
  check_bias("moe_gate_up_swiglu gate bias", args.gate_bias, args.gate.count, args.gate.rows);
  check_bias("moe_gate_up_swiglu up bias", args.up_bias, args.gate.count, args.gate.rows);
  grouped_ = {};  // these routes are others, in the same memory; experts that are multiplied alone group none
  Chunk chunk;
  for (int64_t token = 0; token < args.x.rows; token += chunk.tokens) {
    const int64_t route = token * args.experts_used;
    MoeProduct product =
        product_of(args.gate, args.up, rows_of(args.x, token, args.x.rows - token), args.experts_used,
                   rows_of(args.out, route, args.out.rows - route), args.expert_ids + route);
    product.activation = args.activation;
    product.bias = bias_at(args.gate_bias, 0, 0);
    product.up_bias = bias_at(args.up_bias, 0, 0);
    if (args.input_weights != nullptr) product.input_weights = args.input_weights + route;
    chunk = next_chunk(product, args.x.rows - token, args.experts_used);
    product.num_routes = static_cast<int32_t>(chunk.tokens * args.experts_used);
    multiply(launch, product, chunk, false);
  }
}

void MoeProducts::down(Launch& launch, const MoeDownArgs& args) {
  check_type("moe_down hidden", args.hidden);
  if (args.out.dtype != DType::f32) fail("moe_down on CUDA: out {}, expected f32", name(args.out.dtype));
  require_equal("moe_down: columns of hidden", args.down.cols, args.hidden.cols);
  require_equal("moe_down: rows of hidden", args.out.rows * args.experts_used, args.hidden.rows);
  require_equal("moe_down: columns of out", args.down.rows, args.out.cols);
  check_bias("moe_down bias", args.bias, args.down.count, args.down.rows);
  const float* bias = bias_at(args.bias, 0, 0);
  Chunk chunk;
  for (int64_t token = 0; token < args.out.rows; token += chunk.tokens) {
    const int64_t route = token * args.experts_used;
    const int64_t routes = args.hidden.rows - route;
    const Tensor hidden = rows_of(args.hidden, route, routes);
    // Of bf16 products twice as many routes fit; their error is that of bf16 activations.
    Tensor products{products_.data(), DType::bf16, routes, args.out.cols, args.out.cols};
    const auto product = [&](const Tensor& to) {
      MoeProduct result = product_of(args.down, {}, hidden, 1, to, args.expert_ids + route);
      result.num_routes = static_cast<int32_t>(chunk.tokens * args.experts_used);
      return result;
    };
    chunk = next_chunk(product(products), args.out.rows - token, args.experts_used);
    const Tensor out = rows_of(args.out, token, chunk.tokens);
    if (MoeProduct sum = product(out); chunk.token_tile == 0 && multiplied_alone(sum, chunk.tokens)) {
      sum.route_weights = args.expert_weights + route;
      sum.routes_per_out = args.experts_used;
      sum.add_to_out = args.add_to_out;
      sum.bias = bias;
      multiply_alone(launch, sum);
      continue;
    }
    if (chunk.token_tile == 0) products.dtype = DType::f32;
    multiply(launch, product(products), chunk, args.follows_gate_up);
    combine_routes(launch, {.products = products,
                            .expert_ids = args.expert_ids + route,
                            .weights = args.expert_weights + route,
                            .used = args.experts_used,
                            .bias = bias,
                            .out = out,
                            .add_to_out = args.add_to_out});
  }
}

}  // namespace minfer::cuda
