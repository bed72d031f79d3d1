#include "kernels/cuda/product/linear.h"

#include <algorithm>
#include <optional>

#include "kernels/base/error.h"
#include "kernels/bias.h"
#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/product/dequantise.h"
#include "kernels/cuda/product/stream_product.h"
#include "kernels/cuda/product/strip/strip_kernels.h"
#include "kernels/cuda/product/tile_stream/tile_stream_kernels.h"
#include "kernels/cuda/weights/weight_layout.h"

// Products by the kernels that choose() names (choice/product_choice.h), in chunks for those that need scratch memory.
namespace minfer::cuda {
namespace {

/// The tokens of gate and up that are multiplied at a time: enough for cuBLASLt's full speed.
constexpr int64_t kGateUpTokens = 2048;

size_t element_bytes(DType dtype) {
  return traits(dtype).block_bytes;
}

void require_shape(const char* what, const Tensor& tensor, int64_t rows, int64_t cols) {
  if (tensor.rows != rows || tensor.cols != cols) {
    fail("{}: [{}, {}], expected [{}, {}]", what, tensor.rows, tensor.cols, rows, cols);
  }
}

/// The part of a tensor that begins at a row and a column.
Tensor part(const Tensor& tensor, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  Tensor result = tensor;
  result.data = static_cast<char*>(tensor.data) +
                static_cast<size_t>(row * tensor.stride + col) * element_bytes(tensor.dtype);
  result.rows = rows;
  result.cols = cols;
  return result;
}

/// True if matrix b's rows follow a's in memory, so that both are one matrix.
bool follows(const Weight& a, const Weight& b) {
  const bool whole_strips = !is_tiled(a.dtype) || a.rows % kStripRows == 0;
  const int64_t bytes = is_tiled(a.dtype) ? strips_of(a.rows) * tiles_of(a.cols) * tile_bytes(a.dtype)
                                          : a.rows * a.cols * static_cast<int64_t>(element_bytes(a.dtype));
  return a.dtype == b.dtype && a.cols == b.cols && whole_strips &&
         static_cast<const char*>(a.data) + bytes == b.data;
}

const float* bias_of(const LinearArgs& args, size_t i) {
  return args.biases.empty() ? nullptr : static_cast<const float*>(args.biases[i].data);
}

/// The rows of gate, and of up, that fit into the scratch memory together; whole chunks.
int64_t fitting_pairs(const GateUpArgs& args) {
  const int64_t pair_size = 2 * args.gate.cols * static_cast<int64_t>(element_bytes(args.x.dtype));
  return kWeightScratchBytes / pair_size / kChunkRows * kChunkRows;
}

bool is_aligned(const void* data, intptr_t bytes) {
  return reinterpret_cast<intptr_t>(data) % bytes == 0;
}

/// The shape of `product` with these types; a shape of gate and up if it has `up`.
ProductShape shape_of(const ProductArgs& product, DType weight, DType up, DType x, DType out) {
  return {
      .weight = weight,
      .up = up,
      .x = x,
      .out = out,
      .rows = product.rows,
      .cols = product.cols,
      .gate_up = product.up != nullptr,
      .adds = product.add_to_out,
      .has_norm = product.norm != nullptr,
      .x_is_aligned = is_aligned(product.x, 16) && product.x_stride % 8 == 0,
      .out_is_aligned = product.out_stride % 4 == 0 && is_aligned(product.out, product.out_is_f32 ? 16 : 8) &&
                        is_aligned(product.bias, 16) && is_aligned(product.up_bias, 16),
      .out_takes_pieces = product.out_is_f32 || (product.out_stride % 8 == 0 && is_aligned(product.out, 16)),
      .weight_is_aligned = is_aligned(product.weight, 16) && is_aligned(product.up, 16),
      .up_is_behind = product.up > product.weight};
}

ProductShape shape_of(const ProductArgs& product, const Product& p) {
  return shape_of(product, p.weight.dtype, p.weight.dtype, p.x.dtype, p.out.dtype);
}

/// Runs `kernel` if it takes gate and up as it takes one matrix; returns whether it does.
bool run(Launch& launch, ProductKernel kernel, DType weight, const ProductArgs& product, const Tensor& x,
         const Tensor& out) {
  switch (kernel) {
    case ProductKernel::fp8_gemm:
    case ProductKernel::fp8_stream:
      fp8_product(launch, {.args = product, .x = fp8_activations(x), .out = fp8_activations(out)});
      return true;
    case ProductKernel::stream:
      stream_product(launch, product);
      return true;
    case ProductKernel::tile_stream:
      tile_stream_product(launch, weight, product);
      return true;
    case ProductKernel::strip:
      strip_product(launch, weight, product);
      return true;
    default:
      return false;
  }
}

void check_norm(const FrontNorm& norm, const Tensor& x) {
  if (norm.weight && (norm.weight.dtype != DType::f32 || norm.weight.cols != x.cols))
    fail("linear on CUDA: a norm of {} {} in front of x of {} columns, expected f32 and as many",
         norm.weight.cols, name(norm.weight.dtype), x.cols);
}

}  // namespace

LinearOps::LinearOps(int32_t num_sms, const StepLimits& limits)
    : device_(device_facts(num_sms)),
      product_workspace_(num_sms),
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
  check_norm(args.norm, args.x);
  if (args.x.rows == 0) return;
  int64_t first_col = 0;
  std::optional<Product> waiting;  // may be launched together with the next one
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
  const ProductArgs pair[] = {product_args(first), product_args(second)};
  const ProductKernel kernel = choose(shape_of(pair[0], first), first.x.rows, device_);
  const bool streams = kernel == ProductKernel::tile_stream;
  if ((kernel != ProductKernel::strip && !streams) || !is_tiled(first.weight.dtype) ||
      !is_tiled(second.weight.dtype) || choose(shape_of(pair[1], second), second.x.rows, device_) != kernel)
    return false;
  const auto launch_pair = streams             ? tile_stream_pair
                           : first.x.rows == 1 ? tile_vector_pair
                                               : tile_strip_pair;
  return launch_pair(launch, first.weight.dtype, pair[0], second.weight.dtype, pair[1]);
}

ProductArgs LinearOps::product_args(const Product& p) const {
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
          .partials = product_workspace_.partials.as<float>(),
          .arrivals = product_workspace_.arrivals.as<unsigned>()};
}

void LinearOps::multiply(Launch& launch, const Product& p) {
  const ProductArgs product = product_args(p);
  const ProductKernel kernel = choose(shape_of(product, p), p.x.rows, device_);
  if (run(launch, kernel, p.weight.dtype, product, p.x, {})) return;
  if (kernel == ProductKernel::row_product) return row_product(launch, p);
  if (kernel == ProductKernel::split_product) return split_product(launch, p);
  if (kernel == ProductKernel::matmul) {
    Product without_bias = p;
    without_bias.bias = nullptr;
    matmul_(launch, without_bias);
  } else if (kernel == ProductKernel::f16_matmul) {
    f16_matmul(launch, p);
  } else {
    dequantise_matmul(launch, p);
  }
  if (p.bias != nullptr) add_bias(launch, p.bias, p.out);
}

void LinearOps::f16_matmul(Launch& launch, const Product& p) {
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

Tensor LinearOps::gate_up_product(Launch& launch, const GateUpArgs& args, bool dequantises, int64_t first,
                                  int64_t count, const Tensor& x) {
  const DType type = args.x.dtype;
  const Tensor scratch{gate_up_scratch_.data(), DType::f32, x.rows, 2 * count, 2 * count};
  if (dequantises) {
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
  ProductArgs product = product_args(gate);
  product.up = args.up.data;
  product.bias = bias_at(args.gate_bias, 0, 0);
  product.up_bias = bias_at(args.up_bias, 0, 0);
  product.activation = args.activation;
  check_norm(args.norm, args.x);
  const ProductKernel kernel = choose(
      shape_of(product, args.gate.dtype, args.up.dtype, args.x.dtype, args.out.dtype), tokens, device_);
  if (run(launch, kernel, args.gate.dtype, product, args.x, args.out)) return;
  const bool by_chunks = kernel == ProductKernel::dequantise_matmul;
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
      swiglu(launch, gate_up_product(launch, args, by_chunks, row, count, x),
             part(args.out, token, some, row, count), gating);
    }
  }
}

}  // namespace minfer::cuda
