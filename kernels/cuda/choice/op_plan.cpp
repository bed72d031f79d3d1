#include "kernels/cuda/choice/op_plan.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "kernels/cuda/attention/shared/attention_path.h"
#include "kernels/cuda/choice/expert_choice.h"
#include "kernels/cuda/choice/fp8_gemm_plan.h"
#include "kernels/cuda/choice/product_choice.h"
#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/weights/weight_layout.h"

namespace minfer::cuda {
namespace {

/// The rates of a kernel. Those of dense products are fitted to tests/benchmarks/results/products-2026-11-24*.jsonl:
/// for the 80 in products-h200-2026-11-28.jsonl they are 5 % off in the median and 26 % at most. All other rates are
/// guesses, not held against a measurement. Two types that one launch multiplies count as two products.
struct Pace {
  double begin_us;
  double of_read;   ///< share of the device's rate of reading
  double of_flops;  ///< share of its tensor cores' rate
};
constexpr Pace kElementwise{1.0, 0.7, 0.1};

Pace pace_of(ProductKernel kernel, DType weight, int64_t tokens) {
  const bool is_bf16 = weight == DType::bf16;
  switch (kernel) {
    case ProductKernel::strip:
      if (is_bf16) return {tokens == 1 ? 2.0 : 3.5, 1.0, 0.2};
      return {tokens == 1 ? 3.0 : 5.5, 1.0, 0.2};
    case ProductKernel::stream:
      return {2.5, 0.95, 0.8};
    case ProductKernel::tile_stream:
      return tokens <= kMostTokensOfCluster ? Pace{6.0, 0.8, 0.55} : Pace{9.5, 0.55, 0.9};
    case ProductKernel::fp8_stream:
      return {4.0, 0.95, 0.5};
    case ProductKernel::fp8_gemm:
      return {2.0, 0.4, 0.65};
    default:
      return {2.0, 0.55, 0.8};
  }
}

double us_of(const Pace& pace, double bytes, double flops, const DeviceFacts& device, bool is_fp8 = false) {
  const double rate = is_fp8 ? device.fp8_flops_per_us : device.bf16_flops_per_us;
  return pace.begin_us +
         std::max(bytes / (pace.of_read * device.bytes_per_us), flops / (pace.of_flops * rate));
}

/// Bytes of an element of activations. The few scales of FP8 do not count.
int64_t element_bytes(DType type) {
  return type == DType::fp8 ? 1 : traits(type).block_bytes;
}

double weight_bytes(DType type, int64_t rows, int64_t cols) {
  return static_cast<double>(matrix_stride_bytes(type, rows, cols));
}

std::string label(ProductKernel kernel, DType weight, int64_t tokens) {
  if (kernel == ProductKernel::strip)
    return weight == DType::bf16 ? "bf16_strip" : tokens == 1 ? "tile_vector" : "tile_strip";
  constexpr const char* kNames[] = {
      "fp8_gemm",           "fp8_stream",  "",         "stream",   "tile_stream",
      "split_product",      "row_product", "cublasLt", "cublasLt", "dequantise + cublasLt",
      "each apart + swiglu"};
  return kNames[static_cast<size_t>(kernel)];
}

/// Adds a product with one matrix, or with gate and up, to the plan.
void add_product(OpPlan& plan, const ProductShape& s, int64_t tokens, const DeviceFacts& device) {
  const ProductKernel kernel = choose(s, tokens, device);
  const std::string name = label(kernel, s.weight, tokens);
  plan.kernel += plan.kernel.empty() ? name : " + " + name;
  const auto parts = [](int64_t all, int64_t most) { return static_cast<int32_t>((all + most - 1) / most); };
  int32_t launches = 1;
  const int64_t some = std::min(tokens, kMostStreamedTokens);
  const int64_t matrices = s.gate_up ? 2 : 1;
  switch (kernel) {
    case ProductKernel::strip:
      plan.tile = fmt::format("{} x {}", kStripRows, tokens);
      plan.blocks = std::min<int64_t>(strips_of(s.rows), device.sms);
      break;
    case ProductKernel::stream:
    case ProductKernel::tile_stream:
    case ProductKernel::fp8_stream: {
      const auto plan_of = kernel == ProductKernel::stream        ? stream_plan
                           : kernel == ProductKernel::tile_stream ? tile_stream_plan
                                                                  : fp8_stream_plan;
      const StreamPlan stream = plan_of(s.rows, s.cols, some, s.gate_up, device.sms);
      plan.tile = fmt::format("{} x {}", stream.warpgroups * kWarpgroupRows, stream.token_tile);
      plan.blocks = stream.blocks;
      launches = parts(tokens, kMostStreamedTokens);
      break;
    }
    case ProductKernel::fp8_gemm: {
      const Fp8GemmPlan gemm = fp8_gemm_plan(s.rows, some, s.gate_up, device.sms);
      plan.tile = fmt::format("{} x {}", kGemmRows * kGemmBlocks, 64 * gemm.warpgroups);
      plan.blocks = int64_t{gemm.clusters} * kGemmBlocks;
      launches = parts(tokens, kMostStreamedTokens);
      break;
    }
    case ProductKernel::f16_matmul:
      plan.scratch_bytes += tokens * s.cols * 2;
      launches = 2;  // x becomes f16 first
      break;
    case ProductKernel::dequantise_matmul: {
      const int64_t bytes = matrices * s.rows * s.cols * element_bytes(s.x);
      plan.scratch_bytes += std::min(kWeightScratchBytes, bytes);
      launches = parts(bytes, kWeightScratchBytes) * (s.gate_up ? 4 : 2);  // with swiglu
      break;
    }
    case ProductKernel::apart:
      launches = 3;
      break;
    default:
      break;
  }
  if (s.gate_up && (kernel == ProductKernel::apart || kernel == ProductKernel::dequantise_matmul))
    plan.scratch_bytes += some * 2 * s.rows * int64_t{sizeof(float)};
  plan.launches += launches;
  const double weights =
      weight_bytes(s.weight, s.rows, s.cols) + (s.gate_up ? weight_bytes(s.up, s.rows, s.cols) : 0.0);
  const auto moved = static_cast<double>(tokens) *
                     static_cast<double>(s.cols * element_bytes(s.x) + s.rows * element_bytes(s.out));
  const double flops = 2.0 * static_cast<double>(matrices * tokens * s.rows * s.cols);
  plan.us += us_of(pace_of(kernel, s.weight, tokens), weights + moved, flops, device, s.x == DType::fp8);
  if (kernel == ProductKernel::dequantise_matmul)  // written and read once more
    plan.us +=
        us_of(kElementwise, weights + static_cast<double>(matrices * s.rows * s.cols * 4), 0.0, device);
}

constexpr const char* kExpertKernels[] = {"expert_vector", "expert_strip", "expert_stream", "moe_strip",
                                          "moe_rows"};
constexpr const char* kAttentionPaths[] = {"attention_decode",        "attention_prefill (mma)",
                                           "attention_prefill_wgmma", "attention_prefill_wide",
                                           "attention_latent",        "attention_general"};

/// The mean number of experts, out of `experts`, that `routes` random routes reach.
double experts_reached(int64_t experts, int64_t routes) {
  const auto all = static_cast<double>(experts);
  return all * (1.0 - std::pow(1.0 - 1.0 / all, static_cast<double>(routes)));
}

class Planner {
 public:
  Planner(const OpInfo& info, const BatchShape& shape, const DeviceFacts& device)
      : info_(info), shape_(shape), device_(device) {}

  OpPlan operator()(const LinearArgs& args) const {
    OpPlan plan{.launches = 0};
    const int64_t tokens = info_.scope == TokenScope::logits ? shape_.logit_rows() : shape_.tokens();
    for (size_t i = 0; i < args.weights.size();) {
      // Weights of one type lie one behind the other, and then form one matrix.
      const Weight& first = args.weights[i];
      int64_t rows = first.rows;
      while (++i < args.weights.size() && args.weights[i].dtype == first.dtype &&
             (!is_tiled(first.dtype) || rows % kStripRows == 0))
        rows += args.weights[i].rows;
      add_product(plan,
                  {.weight = first.dtype,
                   .x = args.x.dtype,
                   .out = args.out.dtype,
                   .rows = rows,
                   .cols = first.cols,
                   .adds = args.add_to_out,
                   .has_norm = bool{args.norm.weight}},
                  tokens, device_);
    }
    return plan;
  }
  OpPlan operator()(const GateUpArgs& args) const {
    OpPlan plan{.launches = 0};
    add_product(plan,
                {.weight = args.gate.dtype,
                 .up = args.up.dtype,
                 .x = args.x.dtype,
                 .out = args.out.dtype,
                 .rows = args.gate.rows,
                 .cols = args.gate.cols,
                 .gate_up = true,
                 .has_norm = bool{args.norm.weight}},
                shape_.tokens(), device_);
    return plan;
  }
  OpPlan operator()(const MoeGateUpArgs& args) const {
    return of_experts(args.gate, 2, args.x.dtype, args.experts_used);
  }
  OpPlan operator()(const MoeDownArgs& args) const {
    return of_experts(args.down, 1, args.hidden.dtype, args.experts_used);
  }
  OpPlan operator()(AttentionArgs args) const {
    const bool decodes = info_.scope == TokenScope::decode;
    if (args.kv.block_size == 0) args.kv.block_size = 16;  // the cache is only planned, too
    ForwardBatch batch;
    batch.num_tokens = shape_.tokens();
    batch.num_decode_sequences = shape_.decode_sequences;
    batch.num_decode_tokens = shape_.decode_tokens;
    args.first_sequence = decodes ? 0 : shape_.decode_sequences;
    args.num_sequences = decodes ? shape_.decode_sequences : shape_.prefill_sequences;
    OpPlan plan = elementwise();
    const AttentionPath path = choose_attention_path(batch, args, device_);
    plan.kernel = kAttentionPaths[static_cast<size_t>(path)];
    const KernelWork work = op_work(info_, shape_);
    plan.us = us_of(decodes ? Pace{4.0, 0.8, 0.1} : Pace{6.0, 0.5, 0.7}, static_cast<double>(work.bytes()),
                    static_cast<double>(work.flops), device_);
    return plan;
  }
  template <class Args>
  OpPlan operator()(const Args&) const {
    return elementwise();
  }

 private:
  OpPlan elementwise() const {
    const KernelWork work = op_work(info_, shape_);
    return {.kernel = std::string(name(info_.kind)),
            .us = us_of(kElementwise, static_cast<double>(work.bytes()), 0.0, device_)};
  }

  OpPlan of_experts(const Weight& weight, int64_t matrices, DType x, int64_t used) const {
    const int64_t tokens = shape_.tokens(), routes = tokens * used;
    const ExpertShape shape{
        .weight = weight.dtype, .x = x, .rows = weight.rows, .cols = weight.cols, .experts = weight.count};
    const ExpertChoice choice = choose_experts(shape, tokens, used, device_);
    OpPlan plan{.kernel = kExpertKernels[static_cast<size_t>(choice.kernel)]};
    if (choice.batch_routes > 0) {
      plan.tile = fmt::format("{} routes", choice.batch_routes);
      plan.launches += 1;  // routes are sorted by expert
    }
    if (choice.kernel == ExpertKernel::stream) {
      plan.launches += 1;  // and x is gathered in their order
      plan.scratch_bytes = routes * weight.cols * 2;
    }
    const bool sums_apart = matrices == 1 && choice.kernel != ExpertKernel::vector;
    if (sums_apart) {
      plan.launches += 1;
      plan.scratch_bytes += routes * weight.rows * (choice.kernel == ExpertKernel::stream ? 2 : 4);
    }
    const double read = static_cast<double>(matrices) * weight_bytes(weight.dtype, weight.rows, weight.cols) *
                        experts_reached(weight.count, routes);
    const double moved = static_cast<double>(routes) * static_cast<double>(2 * weight.cols + 2 * weight.rows);
    const double flops = 2.0 * static_cast<double>(matrices * routes * weight.rows * weight.cols);
    plan.us = us_of({2.0 * plan.launches, 0.8, 0.5}, read + moved, flops, device_);
    return plan;
  }

  const OpInfo& info_;
  const BatchShape& shape_;
  const DeviceFacts& device_;
};

}  // namespace

OpPlan plan_op(const OpArgs& args, const OpInfo& info, const BatchShape& shape, const DeviceFacts& device) {
  return std::visit(Planner(info, shape, device), args);
}

}  // namespace minfer::cuda
