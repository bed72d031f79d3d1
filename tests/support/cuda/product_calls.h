#pragma once

#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/cuda/launch/launch_log.h"
#include "tests/reference/ops.h"

namespace minfer::test {

/// Rows [0, rows) of the expected result.
inline std::span<const double> first_rows(const reference::Matrix& matrix, int64_t rows) {
  return std::span(matrix.data).first(static_cast<size_t>(rows * matrix.cols));
}

/// The path of the only launch.
inline std::string path_of(const cuda::LaunchLog& log) {
  const std::vector<KernelLaunch> launches = log.table().from(0);
  return launches.size() == 1 ? launches.front().path : fmt::format("{} launches", launches.size());
}

}  // namespace minfer::test
