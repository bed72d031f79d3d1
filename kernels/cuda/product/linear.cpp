#include "kernels/cuda/product/linear.h"

#include <algorithm>
#include <array>
#include <optional>

#include "kernels/bias.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/product/dequantise.h"
#include "kernels/cuda/product/panel/panel_kernels.h"
#include "kernels/cuda/product/row_product.h"
#include "kernels/cuda/product/stream/stream_plan.h"
#include "kernels/cuda/product/tile_stream/tile_stream_kernels.h"
#include "kernels/cuda/weights/weight_layout.h"
#include "kernels/error.h"

// Which kernels a product takes, and the chunks of the products that need scratch memory. The kernels are in
// files of their own.
namespace minfer::cuda {
namespace {

/// Tokens for which gate and up are multiplied at a time: enough for cuBLASLt's full speed.
constexpr int64_t kGateUpTokens = 2048;

size_t element_bytes(DType dtype) {
  return traits(dtype).block_bytes;
}

void require_shape(const char* what, const Tensor& tensor, int64_t rows, int64_t cols) {
  if (tensor.rows != rows || tensor.cols != cols) {
    fail("{}: [{}, {}], expected [{}, {}]", what, tensor.rows, tensor.cols, rows, cols);
  }
}

/// The part of a tensor from a row and a column on.
Tensor part(const Tensor& tensor, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  Tensor result = tensor;
  result.data = static_cast<char*>(tensor.data) +
                static_cast<size_t>(row * tensor.stride + col) * element_bytes(tensor.dtype);
  result.rows = rows;
  result.cols = cols;
  return result;
}

/// Whether matrix b's rows follow a's in memory, so that both are one matrix.
bool follows(const Weight& a, const Weight& b) {
  const bool whole_panels = !is_tiled(a.dtype) || a.rows % kPanelRows == 0;
  const int64_t bytes = is_tiled(a.dtype) ? panels_of(a.rows) * tiles_of(a.cols) * tile_bytes(a.dtype)
                                          : a.rows * a.cols * static_cast<int64_t>(element_bytes(a.dtype));
  return a.dtype == b.dtype && a.cols == b.cols && whole_panels &&
         static_cast<const char*>(a.data) + bytes == b.data;
}

const float* bias_of(const LinearArgs& args, size_t i) {
  return args.biases.empty() ? nullptr : static_cast<const float*>(args.biases[i].data);
}

/// What the kernels of gate and up are chosen by.
DType x_type(const GateUpArgs& args) {
  return args.norm.weight ? DType::bf16 : args.x.dtype;
}

/// Rows of each that fit into the scratch memory together, whole chunks.
int64_t fitting_pairs(const GateUpArgs& args) {
  const int64_t pair_size = 2 * args.gate.cols * static_cast<int64_t>(element_bytes(args.x.dtype));
  return kWeightScratchBytes / pair_size / kChunkRows * kChunkRows;
}

/// Whether panel_product() has a kernel that norms x of one token.
bool takes_front_norm(const Weight& weight) {
  return weight.count == 1 && (weight.dtype != DType::bf16 || bf16_panel_takes_norm(weight.cols)) &&
         product_path(weight.dtype, DType::bf16, 1, weight.cols) == ProductPath::panel_product;
}

void require_fp8_weight(const Weight& weight) {
  if (weight.dtype != DType::fp8) fail("linear on CUDA: x fp8, weights {}, expected fp8", name(weight.dtype));
}

void stream(Launch& launch, DType type, const PanelArgs& args) {
  type == DType::bf16 ? stream_product(launch, args) : tile_stream_product(launch, type, args);
}

}  // namespace

ProductPath product_path(DType weight, DType x, int64_t tokens, int64_t cols) {
  if (x == DType::f32) {
    if (weight != DType::f32) return ProductPath::dequantise_matmul;
    return tokens <= 8 ? ProductPath::row_product : ProductPath::matmul;
  }
  if (x != DType::bf16) fail("linear on CUDA: x {}, expected bf16 or f32", name(x));
  if (weight == DType::f32) return ProductPath::row_product;
  if (weight == DType::f16) {
    return tokens <= 16 || cols % 8 != 0 ? ProductPath::row_product : ProductPath::f16_matmul;
  }
  if (tokens <= max_panel_tokens(weight) && cols % 8 == 0) return ProductPath::panel_product;
  return weight == DType::bf16 ? ProductPath::matmul : ProductPath::dequantise_matmul;
}

bool takes_fp8(std::span<const Weight> weights, int64_t tokens, int32_t head_size, bool has_wgmma) {
  return has_wgmma && tokens > 1 && (head_size == 0 || head_size == kFp8Columns) &&
         std::ranges::all_of(weights, [](const Weight& weight) {
           return weight.dtype == DType::fp8 && weight.count == 1 &&
                  is_fp8_streamable(weight.rows, weight.cols, false);
         });
}

bool takes_norm(std::span<const Weight> weights, int64_t tokens) {
  return tokens == 1 && std::ranges::all_of(weights, takes_front_norm);
}

LinearOps::LinearOps(int32_t num_sms, const StepLimits& limits)
    : moe_(limits, has_wgmma_),
      panel_workspace_(
          num_sms, std::max({limits.hidden_size, limits.ffn_size, int64_t{limits.heads} * limits.head_size})),
      weight_scratch_(kWeightScratchBytes, "dequantised rows"),
      x_scratch_(static_cast<size_t>(limits.max_tokens) *
                     static_cast<size_t>(std::max(
                         {limits.hidden_size, limits.ffn_size, int64_t{limits.heads} * limits.head_size})) *
                     2,
                 "activations as f16"),
      gate_up_scratch_(
          static_cast<size_t>(std::min<int64_t>(limits.max_tokens, kGateUpTokens) * 2 * limits.ffn_size) *
              sizeof(float),
          "gate and up activations") {}

void LinearOps::linear(Launch& launch, const LinearArgs& args) {
  int64_t rows = 0;
  for (const Weight& weight : args.weights) {
    if (weight.cols != args.x.cols) fail("linear: x has {} columns, expected {}", args.x.cols, weight.cols);
    rows += weight.rows;
  }
  require_shape("linear out", args.out, args.x.rows, rows);
  if (args.x.rows == 0) return;
  int64_t first_col = 0;
  std::optional<Product> waiting;  // for another that it may be launched with
  for (size_t i = 0; i < args.weights.size();) {
    Weight joined = args.weights[i];
    const float* bias = bias_of(args, i);
    for (++i; i < args.weights.size(); ++i) {
      const float* next_bias = bias_of(args, i);
      const bool biases_join = bias == nullptr ? next_bias == nullptr : next_bias == bias + joined.rows;
      if (!biases_join || !follows(joined, args.weights[i])) break;
      joined.rows += args.weights[i].rows;
    }
    const Product product{.weight = joined,
                          .x = args.x,
                          .bias = bias,
                          .out = part(args.out, 0, args.out.rows, first_col, joined.rows),
                          .add_to_out = args.add_to_out,
                          .norm = args.norm};
    first_col += joined.rows;
    if (waiting && multiply_both(launch, *waiting, product)) {
      waiting.reset();
      continue;
    }
    if (waiting) multiply(launch, *waiting);
    waiting = product;
  }
  if (waiting) multiply(launch, *waiting);
}

bool LinearOps::multiply_both(Launch& launch, const Product& first, const Product& second) const {
  const PanelArgs panels[] = {panel_args(first), panel_args(second)};
  const Product* products[] = {&first, &second};
  int streamed = 0;
  for (int i = 0; i < 2; ++i) {
    const Product& p = *products[i];
    const DType type = p.weight.dtype, x = p.x_type();
    if (x != DType::bf16 || !is_tiled(type)) return false;
    if (is_streamed(type, x, panels[i], launch.num_sms())) {
      ++streamed;
    } else if (p.x.rows > kPanelTokens) {
      return false;
    }
    check_panel_args(p);
  }
  if (streamed == 1) return false;
  const auto launch_pair = streamed == 2       ? tile_stream_pair
                           : first.x.rows == 1 ? tile_vector_pair
                                               : tile_panel_pair;
  return launch_pair(launch, first.weight.dtype, panels[0], second.weight.dtype, panels[1]);
}

void LinearOps::check_panel_args(const Product& p) const {
  require_equal("linear x: address modulo 16 bytes", 0, reinterpret_cast<intptr_t>(p.x.data) % 16);
  require_equal("linear x: distance of rows modulo 8", 0, p.x.stride % 8);
  if (p.weight.cols > panel_workspace_.max_cols) {
    fail("linear on CUDA: a weight of {} columns, expected at most {}", p.weight.cols,
         panel_workspace_.max_cols);
  }
}

void LinearOps::check_front_norm(const Product& p) const {
  check_panel_args(p);
  if (p.x.dtype != DType::f32 || p.norm.weight.dtype != DType::f32 || p.norm.weight.cols != p.x.cols)
    fail("linear on CUDA: a norm of {} {} in front of x {} of {} columns, expected f32 and as many",
         p.norm.weight.cols, name(p.norm.weight.dtype), name(p.x.dtype), p.x.cols);
  if (p.x.rows != 1 || !takes_front_norm(p.weight))
    fail("linear on CUDA: a norm in front of {} tokens and weights {}", p.x.rows, name(p.weight.dtype));
}

PanelArgs LinearOps::panel_args(const Product& p) const {
  return {.weight = p.weight.data,
          .x = p.x.data,
          .norm = static_cast<const float*>(p.norm.weight.data),
          .norm_eps = p.norm.eps,
          .bias = p.bias,
          .out = p.out.data,
          .rows = static_cast<int32_t>(p.weight.rows),
          .cols = static_cast<int32_t>(p.weight.cols),
          .tokens = static_cast<int32_t>(p.x.rows),
          .x_stride = static_cast<int32_t>(p.x.stride),
          .out_stride = p.out.stride,
          .out_is_f32 = p.out.dtype == DType::f32,
          .add_to_out = p.add_to_out,
          .partials = panel_workspace_.partials.as<float>(),
          .arrivals = panel_workspace_.arrivals.as<unsigned>()};
}

bool LinearOps::is_streamed(DType weight, DType x, const PanelArgs& args, int32_t num_sms) const {
  if (!has_wgmma_ || x != DType::bf16) return false;
  return weight == DType::bf16 ? is_streamable(args, num_sms)
                               : is_tiled(weight) && is_tile_streamable(weight, args);
}

bool LinearOps::is_dequantised(const GateUpArgs& args, int32_t num_sms) const {
  return std::ranges::any_of(std::array{args.gate, args.up}, [&](const Weight& weight) {
    if (product_path(weight.dtype, x_type(args), args.x.rows, weight.cols) != ProductPath::dequantise_matmul)
      return false;
    const Tensor out{gate_up_scratch_.data(), DType::f32, args.x.rows, weight.rows, 2 * weight.rows};
    return !is_streamed(weight.dtype, x_type(args), panel_args({.weight = weight, .x = args.x, .out = out}),
                        num_sms);
  });
}

void LinearOps::multiply(Launch& launch, const Product& p) {
  const PanelArgs panel = panel_args(p);
  if (p.x.dtype == DType::fp8) {
    require_fp8_weight(p.weight);
    return fp8_stream_product(launch, {.args = panel, .x = fp8_activations(p.x)});
  }
  if (p.norm.weight) {
    check_front_norm(p);
    return panel_product(launch, p.weight.dtype, panel);
  }
  if (is_streamed(p.weight.dtype, p.x.dtype, panel, launch.num_sms()))
    return stream(launch, p.weight.dtype, panel);
  switch (product_path(p.weight.dtype, p.x.dtype, p.x.rows, p.weight.cols)) {
    case ProductPath::row_product:
      return row_product(launch, p);
    case ProductPath::panel_product:
      check_panel_args(p);
      return panel_product(launch, p.weight.dtype, panel);
    case ProductPath::matmul: {
      Product without_bias = p;
      without_bias.bias = nullptr;
      matmul_(launch, without_bias);
      break;
    }
    case ProductPath::f16_matmul:
      f16_matmul(launch, p);
      break;
    case ProductPath::dequantise_matmul:
      dequantise_matmul(launch, p);
      break;
  }
  if (p.bias != nullptr) add_bias(launch, p.bias, p.out);
}

void LinearOps::f16_matmul(Launch& launch, const Product& p) {
  if (p.out.dtype != DType::f32) return dequantise_matmul(launch, p);  // cuBLASLt writes no bf16 from f16
  const Tensor x{x_scratch_.data(), DType::f16, p.x.rows, p.x.cols, p.x.cols};
  if (static_cast<size_t>(x.rows * x.cols) * 2 > x_scratch_.bytes()) {
    fail("linear on CUDA: {} tokens of {} columns exceed the scratch memory", x.rows, x.cols);
  }
  convert_to_f16(launch, p.x, x.data);
  matmul_(launch, {.weight = p.weight, .x = x, .out = p.out, .add_to_out = p.add_to_out});
}

void LinearOps::dequantise_matmul(Launch& launch, const Product& p) {
  const DType type = p.x.dtype;
  const int64_t row_size = p.weight.cols * static_cast<int64_t>(element_bytes(type));
  const int64_t fitting = kWeightScratchBytes / row_size / kChunkRows * kChunkRows;
  if (fitting == 0) fail("linear on CUDA: rows of {} columns exceed the scratch memory", p.weight.cols);
  for (int64_t first = 0; first < p.weight.rows; first += fitting) {
    const int64_t rows = std::min(fitting, p.weight.rows - first);
    dequantise_rows(launch, p.weight, first, rows, type, weight_scratch_.data());
    matmul_(launch, {.weight = {weight_scratch_.data(), type, 1, rows, p.weight.cols},
                     .x = p.x,
                     .out = part(p.out, 0, p.out.rows, first, rows),
                     .add_to_out = p.add_to_out});
  }
}

Tensor LinearOps::gate_up_product(Launch& launch, const GateUpArgs& args, int64_t first, int64_t count,
                                  const Tensor& x) {
  const DType type = args.x.dtype;
  const Tensor scratch{gate_up_scratch_.data(), DType::f32, x.rows, 2 * count, 2 * count};
  if (is_dequantised(args, launch.num_sms())) {
    const size_t half = static_cast<size_t>(count * args.gate.cols) * element_bytes(type);
    dequantise_rows(launch, args.gate, first, count, type, weight_scratch_.data());
    dequantise_rows(launch, args.up, first, count, type, static_cast<char*>(weight_scratch_.data()) + half);
    matmul_(launch,
            {.weight = {weight_scratch_.data(), type, 1, 2 * count, args.gate.cols}, .x = x, .out = scratch});
  } else {
    const Weight weights[2] = {args.gate, args.up};
    linear(launch, {.x = x, .weights = weights, .out = scratch, .norm = args.norm});
  }
  return scratch;
}

void LinearOps::gate_up_swiglu(Launch& launch, const GateUpArgs& args) {
  const int64_t tokens = args.x.rows;
  const int64_t rows = args.gate.rows;
  require_shape("gate_up_swiglu out", args.out, tokens, rows);
  if (args.up.rows != rows || args.up.cols != args.gate.cols || args.x.cols != args.gate.cols) {
    fail("gate_up_swiglu: gate [{}, {}], up [{}, {}], x of {} columns, expected one shape", rows,
         args.gate.cols, args.up.rows, args.up.cols, args.x.cols);
  }
  check_bias("gate_up_swiglu gate bias", args.gate_bias, 1, rows);
  check_bias("gate_up_swiglu up bias", args.up_bias, 1, rows);
  if (tokens == 0) return;
  const Product gate{.weight = args.gate, .x = args.x, .out = args.out, .norm = args.norm};
  PanelArgs panel = panel_args(gate);
  panel.up = args.up.data;
  panel.bias = bias_at(args.gate_bias, 0, 0);
  panel.up_bias = bias_at(args.up_bias, 0, 0);
  panel.activation = args.activation;
  if (args.x.dtype == DType::fp8) {
    require_fp8_weight(args.gate);
    require_fp8_weight(args.up);
    if (args.out.dtype != DType::fp8 || !is_fp8_streamable(rows, args.gate.cols, true) ||
        panel.up < panel.weight)
      fail(
          "gate_up_swiglu on CUDA: x fp8, out {} [{}, {}], expected fp8, of a multiple of 128 columns, and "
          "up behind gate",
          name(args.out.dtype), tokens, rows);
    return fp8_stream_product(
        launch, {.args = panel, .x = fp8_activations(args.x), .out = fp8_activations(args.out)});
  }
  const bool is_one_type = args.gate.dtype == args.up.dtype;
  if (is_one_type && is_streamed(args.gate.dtype, x_type(args), panel, launch.num_sms()))
    return stream(launch, args.gate.dtype, panel);
  if (is_one_type &&
      product_path(args.gate.dtype, x_type(args), tokens, args.gate.cols) == ProductPath::panel_product) {
    gate.norm.weight ? check_front_norm(gate) : check_panel_args(gate);
    return panel_product(launch, args.gate.dtype, panel);
  }
  const bool by_chunks = is_dequantised(args, launch.num_sms());
  const int64_t chunk_rows = by_chunks ? std::min(rows, fitting_pairs(args)) : rows;
  const int64_t chunk_tokens =
      static_cast<int64_t>(gate_up_scratch_.bytes() / sizeof(float)) / (2 * chunk_rows);
  if (chunk_rows == 0 || chunk_tokens == 0) fail("gate_up_swiglu on CUDA: the scratch memory is too small");
  for (int64_t row = 0; row < rows; row += chunk_rows) {
    const int64_t count = std::min(chunk_rows, rows - row);
    const Gating gating{.activation = args.activation,
                        .gate_bias = bias_at(args.gate_bias, 0, row),
                        .up_bias = bias_at(args.up_bias, 0, row)};
    for (int64_t token = 0; token < tokens; token += chunk_tokens) {
      const int64_t some = std::min(chunk_tokens, tokens - token);
      const Tensor x = part(args.x, token, some, 0, args.x.cols);
      swiglu(launch, gate_up_product(launch, args, row, count, x), part(args.out, token, some, row, count),
             gating);
    }
  }
}

}  // namespace minfer::cuda
