#include "kernels/cuda/product/matmul.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/cuda/launch/library_launches.h"
#include "kernels/cuda/launch/stamp_only.h"

namespace minfer::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail<DeviceError>("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status));
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    case DType::f8_e4m3:
      return CUDA_R_8F_E4M3;
    default:
      fail("matmul on CUDA: type {}, expected f32, bf16, f16 or fp8_e4m3", name(dtype));
  }
}

/// cuBLASLt is column-major: its A is the weight [K, N] (transposed), B is x [K, tokens], C and D are
/// out [N, tokens].
struct Layouts {
  cublasLtMatrixLayoutOpaque_t weight, x, out;
};

Layouts layouts_of(const Product& p, int64_t tokens) {
  Layouts l;
  const auto init = [](cublasLtMatrixLayoutOpaque_t& layout, DType dtype, int64_t rows, int64_t cols,
                       int64_t stride) {
    check(cublasLtMatrixLayoutInit(&layout, data_type(dtype), static_cast<uint64_t>(rows),
                                   static_cast<uint64_t>(cols), stride),
          "matrix layout");
  };
  init(l.weight, p.weight.dtype, p.weight.cols, p.weight.rows, p.weight.cols);
  init(l.x, p.x.dtype, p.x.cols, tokens, p.x.stride);
  init(l.out, p.out.dtype, p.weight.rows, tokens, p.out.stride);
  return l;
}

/// The largest power of two up to 256 that divides all addresses.
uint32_t alignment_of(const Product& p) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(p.weight.data) | reinterpret_cast<uintptr_t>(p.x.data) |
                        reinterpret_cast<uintptr_t>(p.out.data) | 256u;
  return 1u << std::countr_zero(bits);
}

}  // namespace

Matmul::Matmul() : handle_(make_cublas_lt()), workspace_(kWorkspaceBytes, "cuBLASLt workspace") {}

Matmul::ChosenPlan& Matmul::plan(const Product& p) {
  const Key key{.rows = p.weight.rows,
                .cols = p.weight.cols,
                .tokens = p.x.rows,
                .x_stride = p.x.stride,
                .out_stride = p.out.stride,
                .type = p.weight.dtype,
                .out_type = p.out.dtype,
                .alignment = alignment_of(p)};
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;

  const std::vector<Plan> plans = propose(p, key.tokens, 1);
  if (plans.empty()) {
    fail<DeviceError>("cuBLASLt: no algorithm for {} [{}, {}] and {} tokens", name(p.weight.dtype),
                      p.weight.rows, p.weight.cols, key.tokens);
  }
  return plans_.emplace(key, ChosenPlan{.plan = plans.front()}).first->second;
}

std::vector<Matmul::Plan> Matmul::propose(const Product& p, int64_t tokens, int count) const {
  cublasLtMatmulDescOpaque_t operation{};
  check(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "operation");
  const cublasOperation_t transpose = CUBLAS_OP_T;
  check(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
        "transposition");
  if (p.weight.dtype == DType::f8_e4m3) {
    const int8_t fast = 1;  // else sums are moved to f32 registers every few instructions, which takes time
    check(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast),
          "fast sums");
  }
  cublasLtMatmulPreferenceOpaque_t preference;
  check(cublasLtMatmulPreferenceInit(&preference), "preference");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value), "preference");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    prefer(attribute, alignment_of(p));
  }
  Layouts layouts = layouts_of(p, tokens);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle_.get(), &operation, &layouts.weight, &layouts.x, &layouts.out,
                                       &layouts.out, &preference, count, results.data(), &found),
        "choice of an algorithm");
  std::vector<Plan> plans;
  for (const cublasLtMatmulHeuristicResult_t& result : std::span(results).first(static_cast<size_t>(found))) {
    if (result.state == CUBLAS_STATUS_SUCCESS) plans.push_back({operation, result.algo});
  }
  return plans;
}

void Matmul::operator()(Launch& launch, const Product& p) {
  if (p.weight.dtype != p.x.dtype) {
    fail("matmul on CUDA: weights {} and x {}, expected the same", name(p.weight.dtype), name(p.x.dtype));
  }
  ChosenPlan& chosen = plan(p);
  if (launch.needs_stamp_of_its_own()) stamp_only(launch);
  run(launch.stream(), p, chosen.plan);
  launch.library_launched();
  if (launch.log() != nullptr) note_launches(*launch.log(), p, chosen);
}

// cuBLASLt is asked for its kernels when a shape comes again: many numbers of tokens come only once.
void Matmul::note_launches(LaunchLog& log, const Product& p, ChosenPlan& chosen) {
  if (chosen.was_noted && !chosen.is_listed) {
    chosen.is_listed = true;
    const auto enqueue = [&](cudaStream_t stream) { run(stream, p, chosen.plan); };
    std::vector<int32_t> entered;
    for (KernelLaunch& launch : library_launches("cublasLt", enqueue))
      entered.push_back(log.enter(std::move(launch)));
    if (!entered.empty()) chosen.launches = std::move(entered);
  }
  chosen.was_noted = true;
  log.add(chosen.launches);
}

void Matmul::run(cudaStream_t stream, const Product& p, const Plan& plan) {
  Layouts layouts = layouts_of(p, p.x.rows);
  const float alpha = 1.0f;
  const float beta = p.add_to_out ? 1.0f : 0.0f;
  check(cublasLtMatmul(handle_.get(), const_cast<cublasLtMatmulDescOpaque_t*>(&plan.operation), &alpha,
                       p.weight.data, &layouts.weight, p.x.data, &layouts.x, &beta, p.out.data, &layouts.out,
                       p.out.data, &layouts.out, &plan.algorithm, workspace_.data(), kWorkspaceBytes, stream),
        "matmul");
}

}  // namespace minfer::cuda
