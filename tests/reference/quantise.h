#pragma once

#include "kernels/tensor_view.h"
#include "tests/reference/ops.h"

namespace minfer::reference {

/// The number that e4m3 rounds to, by its definition: among the nearest of all codes the even one; beyond 448 it is 448.
double nearest_e4m3(double value);

/// What fp8 with a scale a row makes of the rows of a matrix: the smallest bf16 that is at least largest / 448 (in f32), times the
/// nearest_e4m3 of what it divides. A row with a number that is not finite becomes NaN.
Matrix fp8_rows(const Matrix& weight);

/// The values that a tensor has when it is loaded; row-major without gaps, count * rows rows.
Matrix loaded_values(const HostTensor& tensor);

}  // namespace minfer::reference
