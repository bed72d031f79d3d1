#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/bench/kernel_operands.h"

namespace minfer::test {

/// Cases of one op with its own weights, which a test runs on a backend. Move-only: tensors point into it.
struct KernelSuite {
  std::string name;  ///< e.g. "linear q4_k"
  std::vector<KernelCase> cases;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> weight_bytes;
  std::vector<HostTensor> tensors;  ///< in weight_bytes
};

/// Norms, products and attention of small shapes, with types and numbers of tokens that take different
/// paths, and activations of this type: f32 or bf16.
std::vector<KernelSuite> kernel_suites(DType activation);

/// Runs every case of a suite once, each in its own step. Returns, case by case, the normalised mean square
/// error of the output against the reference in double precision.
std::vector<double> kernel_errors(const KernelSuite& suite, std::unique_ptr<Backend> backend);

}  // namespace minfer::test
