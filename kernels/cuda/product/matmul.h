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

/// Products of many tokens through cuBLASLt: bf16 weights with bf16 x, f16 with f16 (out f32), f32 with
/// f32 (in full f32), or e4m3 with e4m3 (out bf16; scales of 1, sums as tensor cores keep them: for measuring what these do).
/// The algorithm of a shape, its exact number of tokens included, is asked for once and kept. No device memory is
/// allocated but when it is made. One thread at a time.
class Matmul {
 public:
  Matmul();

  /// How a product is computed.
  struct Plan {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatmulAlgo_t algorithm;
  };

  /// product.bias must be null. cuBLASLt's kernels carry no stamp: one of its own is launched where that is needed.
  void operator()(Launch& launch, const Product& product);

  /// The first `count` plans that cuBLASLt has for the product with this many tokens, the one it thinks
  /// fastest first; fewer if it has fewer.
  std::vector<Plan> propose(const Product& product, int64_t tokens, int count) const;
  void run(cudaStream_t stream, const Product& product, const Plan& plan);

 private:
  struct Key {
    int64_t rows, cols, tokens, x_stride, out_stride;
    DType type, out_type;
    uint32_t alignment;
    auto operator<=>(const Key&) const = default;
  };
  /// A plan that was chosen, and what it launches.
  struct ChosenPlan {
    Plan plan;
    bool was_noted = false;  ///< in a step that is recorded
    bool is_listed = false;  ///< cuBLASLt has been asked what it launches
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
/// `products` as there. Throws DeviceError if cuBLASLt proposes no plan.
FastestMatmul fastest_matmul(Matmul& matmul, std::span<const Product> products);

}  // namespace minfer::cuda
