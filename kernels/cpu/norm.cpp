#include <algorithm>
#include <cmath>

#include "kernels/cpu/ops.h"

// Norms of rows, in place or into another tensor. A layer norm's sums are double, one element after the other.
namespace minfer::cpu {
namespace {

void check(const NormArgs& args) {
  const Tensor& x = args.x;
  check_f32("norm: x", x, x.rows, x.cols);
  check_f32("norm: out", args.out, x.rows, x.cols);
  if (args.kind != NormKind::none && args.kind != NormKind::cut) {
    const bool has_groups = args.kind == NormKind::rms && args.weight.rows > 1;
    check_vector("norm: weight", args.weight, x.cols, has_groups ? args.weight.rows : 1);
  } else if (args.weight) {
    fail("norm: a weight of {} columns, expected none without a norm", args.weight.cols);
  }
  if (args.bias) check_vector("norm: bias", args.bias, x.cols);
  if (args.add_to_out && args.out.data == x.data) fail("norm: out is x, expected another tensor to add to");
}

struct Moments {
  double mean, variance;
};

Moments moments_of(const float* x, int64_t size) {
  double sum = 0.0, squares = 0.0;
  for (int64_t i = 0; i < size; ++i)
    sum += static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(size);
  for (int64_t i = 0; i < size; ++i)
    squares += (x[i] - mean) * (x[i] - mean);
  return {mean, squares / static_cast<double>(size)};
}

void cut_row(const float* x, float cut, int64_t size, float* out) {
  const auto [mean, variance] = moments_of(x, size);
  const double least = mean + static_cast<double>(cut) * std::sqrt(variance);
  for (int64_t i = 0; i < size; ++i)
    out[i] = x[i] < least ? 0.0f : static_cast<float>(x[i] - least);
}

/// Normalises row t of x and multiplies it by the weight; `out` may be that row.
void norm_row(const NormArgs& args, int64_t t, float* out, const OpContext& context) {
  const float* x = args.x.f32_row(t);
  const int64_t group = args.weight.rows > 1 ? t % args.weight.rows : 0;
  const float* weight = static_cast<const float*>(args.weight.data) + group * args.x.cols;
  switch (args.kind) {
    case NormKind::rms:
      return context.lanes->rms_norm_row(x, weight, args.eps, args.x.cols, out);
    case NormKind::layer:
      return layer_norm_row(x, weight, args.eps, args.x.cols, out);
    case NormKind::cut:
      return cut_row(x, args.cut, args.x.cols, out);
    case NormKind::none:
      std::copy_n(x, x == out ? 0 : args.x.cols, out);
  }
}

/// out = scale * (row + bias), or += instead of =.
void end_row(const NormArgs& args, const float* row, float* out) {
  const auto* bias = static_cast<const float*>(args.bias.data);
  for (int64_t i = 0; i < args.x.cols; ++i) {
    const float value = args.scale * (bias == nullptr ? row[i] : row[i] + bias[i]);
    out[i] = args.add_to_out ? out[i] + value : value;
  }
}

}  // namespace

void layer_norm_row(const float* x, const float* weight, float eps, int64_t size, float* out) {
  const auto [mean, variance] = moments_of(x, size);
  const double scale = 1.0 / std::sqrt(variance + static_cast<double>(eps));
  for (int64_t i = 0; i < size; ++i)
    out[i] = static_cast<float>((x[i] - mean) * scale) * weight[i];
}

void norm(const NormArgs& args, const OpContext& context) {
  check(args);
  if (args.is_plain_rms()) {
    return for_each_row(args.x, context, [&](int64_t t) { norm_row(args, t, args.out.f32_row(t), context); });
  }
  const auto cols = static_cast<size_t>(args.x.cols);
  const auto threads = static_cast<size_t>(context.pool->threads());
  auto* rows = static_cast<float*>(context.workspace->take(threads * cols * sizeof(float)));
  for_each_part(args.x.rows, args.x.rows * args.x.cols, context, [&](int64_t t, int32_t thread) {
    float* row = rows + static_cast<size_t>(thread) * cols;
    norm_row(args, t, row, context);
    end_row(args, row, args.out.f32_row(t));
  });
}

}  // namespace minfer::cpu
