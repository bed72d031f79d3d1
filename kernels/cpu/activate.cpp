#include <cmath>

#include "kernels/cpu/ops.h"

namespace minfer::cpu {
namespace {

/// See Activation. Computes in double and rounds once.
double activated(const Activation& activation, double x) {
  switch (activation.kind) {
    case Activation::Kind::gelu_tanh: {
      const double slope =
          x * (static_cast<double>(kGeluTanhLinear) + static_cast<double>(kGeluTanhCubic) * x * x);
      return x / (1.0 + std::exp(-slope));
    }
    case Activation::Kind::gelu:
      return 0.5 * x * (1.0 + std::erf(x * std::sqrt(0.5)));
    case Activation::Kind::xielu: {
      const double line = static_cast<double>(activation.linear) * x;
      if (x > 0.0) return static_cast<double>(activation.positive) * x * x + line;
      const double bent = std::expm1(x < activation.eps ? x : static_cast<double>(activation.eps)) - x;
      return static_cast<double>(activation.negative) * bent + line;
    }
    case Activation::Kind::relu_squared:
      return x < 0.0 ? 0.0 : x * x;
    case Activation::Kind::soft_cap:
      return std::isinf(x) && x < 0.0 ? x : activation.cap * std::tanh(x / activation.cap);
  }
  return x;
}

}  // namespace

void activate(const ActivateArgs& args, const OpContext& context) {
  check_f32("activate: x", args.x, args.x.rows, args.x.cols);
  check_f32("activate: out", args.out, args.x.rows, args.x.cols);
  for_each_row(args.x, context, [&](int64_t t) {
    const float* x = args.x.f32_row(t);
    float* out = args.out.f32_row(t);
    for (int64_t i = 0; i < args.x.cols; ++i)
      out[i] = static_cast<float>(activated(args.activation, static_cast<double>(x[i])));
  });
}

}  // namespace minfer::cpu
