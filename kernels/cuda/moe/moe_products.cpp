#include "kernels/cuda/moe/moe_products.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/bias.h"
#include "kernels/cuda/choice/product_choice.h"
#include "kernels/cuda/moe/expert_strip.h"
#include "kernels/cuda/moe/stream/expert_stream.h"
#include "kernels/cuda/weights/weight_layout.h"

// Products of experts by the kernels that choose_experts() names, over chunks of tokens that fit into the scratch memory.
namespace minfer::cuda {
namespace {

/// The most routes of a chunk. Down's products take this times 4 * hidden bytes: 64 MiB for a hidden size of
/// 4,096. That is enough for the experts' weights to be read again only rarely.
constexpr int64_t kMaxRoutes = 4096;
/// For sorted activations, and for streamed products: 16,384 routes of 2,048 columns take half of it.
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

bool is_aligned(const void* data, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

ExpertShape shape_of(const MoeProduct& p) {
  return {.weight = p.dtype,
          .x = p.x_is_f32 ? DType::f32 : DType::bf16,
          .rows = p.rows,
          .cols = p.cols,
          .experts = p.experts,
          .x_is_aligned = p.x_stride % 8 == 0 && is_aligned(p.x, 16),
          .out_is_aligned = p.out_stride % 4 == 0 && is_aligned(p.out, p.out_is_f32 ? 16 : 8) &&
                            is_aligned(p.bias, 16) && is_aligned(p.up_bias, 16),
          .out_takes_pieces = p.out_is_f32 || (p.out_stride % 8 == 0 && is_aligned(p.out, 16)),
          .weight_is_aligned =
              is_aligned(p.weight, 16) && is_aligned(p.up, 16) && (p.up == nullptr || p.up > p.weight)};
}

void multiply_alone(Launch& launch, const MoeProduct& p) {
  p.dtype == DType::bf16 ? moe_bf16_vector_product(launch, p) : moe_vector_product(launch, p);
}

}  // namespace

MoeProducts::MoeProducts(const DeviceFacts& device, const StepLimits& limits) : device_(device) {
  if (limits.experts == 0) return;
  const auto routes_of = [&](int64_t most) {
    return std::clamp<int64_t>(most / limits.experts_used, 1, limits.max_tokens) * limits.experts_used;
  };
  max_routes_ = routes_of(kMaxRoutes);
  auto product_bytes = static_cast<size_t>(max_routes_ * limits.hidden_size) * sizeof(float);
  const int64_t streamed_row_bytes = limits.hidden_size * 2;
  const int64_t streamed =
      routes_of(std::min<int64_t>(kMostGroupedRoutes, kMostSortedBytes / streamed_row_bytes));
  if (device.has_wgmma && expert_token_tile(DType::bf16, streamed, limits.experts) > 0) {
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
  ExpertShape shape = shape_of(rest);
  if (streamed > 1) {
    const ExpertChoice choice = choose_experts(shape, streamed, experts_used, device_);
    if (choice.kernel == ExpertKernel::stream) return {streamed, choice};
  }
  if (experts_used > max_routes_) {
    fail("products of {} experts a token on CUDA: room for {}", experts_used, max_routes_);
  }
  shape.has_sorted_x = false;
  const int64_t some = std::min(tokens, max_routes_ / experts_used);
  return {some, choose_experts(shape, some, experts_used, device_)};
}

void MoeProducts::multiply(Launch& launch, MoeProduct product, const Chunk& chunk, bool is_grouped) {
  const auto& [kernel, batch_routes, turn_routes] = chunk.choice;
  if (kernel == ExpertKernel::vector) return multiply_alone(launch, product);
  if (batch_routes > 0) {
    auto* batches = batches_.as<ExpertRoutes>();
    product.groups = {.batches = batches,
                      .num_batches = reinterpret_cast<BatchCounts*>(batches + most_batches_),
                      .routes = routes_.as<int32_t>(),
                      .batch_routes = batch_routes,
                      .turn_routes = turn_routes};
    const Grouped wanted{product.expert_ids, product.num_routes, product.experts, product.groups.batch_routes,
                         product.groups.turn_routes};
    if (is_grouped && grouped_ == wanted) {
      product.groups.are_complete = true;
    } else {
      group_routes(launch, product.expert_ids, product.num_routes, product.experts, product.groups);
    }
    grouped_ = wanted;
  }
  if (kernel == ExpertKernel::stream) return expert_stream_product(launch, product, sorted_x_.data());
  const bool gate_up = product.up != nullptr;
  if (kernel == ExpertKernel::expert_strip) {
    gate_up ? expert_strip_product<2>(launch, product) : expert_strip_product<1>(launch, product);
  } else if (kernel == ExpertKernel::strip) {
    const int tiles = batch_routes / kStripTokens;
    gate_up ? moe_strip_product<2>(launch, product, tiles) : moe_strip_product<1>(launch, product, tiles);
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
  grouped_ = {};  // other routes in the same memory; kernels for single routes group none
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
    // Twice the number of routes fits as bf16 products; their error is that of bf16 activations.
    Tensor products{products_.data(), DType::bf16, routes, args.out.cols, args.out.cols};
    const auto product = [&](const Tensor& to) {
      MoeProduct result = product_of(args.down, {}, hidden, 1, to, args.expert_ids + route);
      result.num_routes = static_cast<int32_t>(chunk.tokens * args.experts_used);
      return result;
    };
    chunk = next_chunk(product(products), args.out.rows - token, args.experts_used);
    const Tensor out = rows_of(args.out, token, chunk.tokens);
    if (chunk.choice.kernel == ExpertKernel::vector) {
      MoeProduct sum = product(out);
      sum.route_weights = args.expert_weights + route;
      sum.routes_per_out = args.experts_used;
      sum.add_to_out = args.add_to_out;
      sum.bias = bias;
      multiply_alone(launch, sum);
      continue;
    }
    if (chunk.choice.kernel != ExpertKernel::stream) products.dtype = DType::f32;
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
