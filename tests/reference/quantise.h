#pragma once

#include "kernels/tensor_view.h"
#include "tests/reference/ops.h"

namespace minfer::reference {

/// The number that e4m3 rounds to, by its definition: the nearest code, the even one of two; beyond 448 it is 448.
double nearest_e4m3(double value);

/// The rows of a matrix in fp8 with one scale a row: the smallest bf16 that is at least largest / 448 (in f32), times the
/// nearest_e4m3 of the values divided by it. A row with a number that is not finite becomes NaN.
Matrix fp8_rows(const Matrix& weight);

/// The values of a tensor after it is loaded; row-major without gaps, count * rows rows.
Matrix loaded_values(const HostTensor& tensor);

}  // namespace minfer::reference
