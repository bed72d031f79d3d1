#include "kernels/cpu/check.h"
#include "kernels/cpu/ops.h"

namespace minfer::cpu {

void rms_norm(const Tensor& x, const Weight& weight, float eps, const Tensor& out, const OpContext& context) {
  check_f32("rms_norm: x", x, x.rows, x.cols);
  check_f32("rms_norm: out", out, x.rows, x.cols);
  check_vector("rms_norm: weight", weight, x.cols);
  const auto* scale = static_cast<const float*>(weight.data);
  for_each_row(x, context, [&](int64_t t) {
    context.lanes->rms_norm_row(x.f32_row(t), scale, eps, x.cols, out.f32_row(t));
  });
}

}  // namespace minfer::cpu
