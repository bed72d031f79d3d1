#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <cublasLt.h>

#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/product.h"

namespace minfer::cuda {

/// Products of many tokens through cuBLASLt: bf16 weights with bf16 x, f16 with f16 (out f32), f32 with f32 (in
/// full f32), or e4m3 with e4m3 (out bf16; scales of 1, sums as tensor cores keep them: a measure of what these
/// reach). The algorithm for a shape, including its exact number of tokens, is asked for once and kept. Only
/// the constructor allocates device memory. One thread at a time.
class Matmul {
 public:
  Matmul();

  /// How a product is computed.
  struct Plan {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatmulAlgo_t algorithm;
  };

  /// product.bias must be null. cuBLASLt's kernels carry no stamp: this launches a stamp kernel if one is needed.
  void operator()(Launch& launch, const Product& product);

  /// Up to `count` plans that cuBLASLt has for the product with this many tokens. The first is the one it
  /// thinks fastest.
  std::vector<Plan> propose(const Product& product, int64_t tokens, int count) const;
  void run(cudaStream_t stream, const Product& product, const Plan& plan);

 private:
  struct Key {
    int64_t rows, cols, tokens, x_stride, out_stride;
    DType type, out_type;
    uint32_t alignment;
    auto operator<=>(const Key&) const = default;
  };
  /// A chosen plan, and what it launches.
  struct ChosenPlan {
    Plan plan;
    bool was_noted = false;  ///< in a step that is recorded
    bool is_listed = false;  ///< cuBLASLt has told what it launches
    std::vector<int32_t> launches = {
        -1};  ///< indices into the launch table; -1: one kernel that is not known yet
  };
  ChosenPlan& plan(const Product& product);
  void note_launches(LaunchLog& log, const Product& product, ChosenPlan& chosen);

  CublasLt handle_;
  DeviceBuffer workspace_;
  std::map<Key, ChosenPlan> plans_;
};

/// The plan that fastest_matmul_us() (matmul_search.h) finds, and its time.
struct FastestMatmul {
  Matmul::Plan plan;
  double us;
};
/// `products`: as for fastest_matmul_us(). Throws DeviceError if cuBLASLt proposes no plan.
FastestMatmul fastest_matmul(Matmul& matmul, std::span<const Product> products);

}  // namespace minfer::cuda
