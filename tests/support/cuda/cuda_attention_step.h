#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/attention/attention.h"
#include "tests/reference/ops.h"
#include "tests/support/cuda/cuda_paged_batch.h"
#include "tests/support/cuda/fp8_tensor.h"

namespace minfer::test {

inline constexpr DType kNarrowTypes[] = {DType::bf16, DType::f16, DType::f8_e4m3};

/// The cases with kernels on tensor cores that long tests cover: each head size, and each type with the head sizes that models use most.
struct HeadAndType {
  int32_t head_size;
  DType kv;
};
inline constexpr HeadAndType kHeadsAndTypes[] = {
    {64, DType::bf16},  {64, DType::f8_e4m3},  {80, DType::f16},     {96, DType::bf16},
    {96, DType::f16},   {128, DType::bf16},    {128, DType::f16},    {128, DType::f8_e4m3},
    {192, DType::f16},  {192, DType::f8_e4m3}, {256, DType::bf16},   {256, DType::f8_e4m3},
    {512, DType::bf16}, {512, DType::f16},     {512, DType::f8_e4m3}};

struct CudaAttentionShape {
  int32_t heads = 8;
  int32_t kv_heads = 2;
  int32_t head_size = 128;
  int32_t block_size = 16;
  DType qkv = DType::bf16;
  DType kv = DType::bf16;
  DType out = DType::bf16;  ///< with qkv in bf16; or fp8
  int32_t v_head_size = 0;  ///< 0: as head_size
  reference::AttentionOptions options = {};
  float scale = 0.0f;       ///< 0: 1 / sqrt(head_size)
  bool v_in_k = false;      ///< KvLayer::v_in_k
  int32_t most_chosen = 0;  ///< AttentionArgs::most_chosen, of random keys; 0: no keys are chosen

  int64_t value_size() const { return v_head_size > 0 ? v_head_size : head_size; }
  int64_t q_cols() const { return int64_t{heads} * head_size; }
  int64_t k_cols() const { return int64_t{kv_heads} * head_size; }
  int64_t v_cols() const { return kv_heads * value_size(); }
  int64_t qkv_cols() const { return q_cols() + (v_in_k ? 0 : k_cols() + v_cols()); }
  int64_t out_cols() const { return heads * value_size(); }
  std::string text() const;
};

/// A step of attention over random data, its decoding sequences first. Cache blocks in front of all windows hold NaN.
class CudaAttentionStep {
 public:
  /// `windows`: windows of further layers with the shape's heads. `others`: further kinds of layers.
  CudaAttentionStep(const CudaAttentionShape& shape, std::vector<CudaSequence> sequences, int32_t num_decode,
                    int32_t max_context = 0, std::vector<AttentionWindow> windows = {},
                    std::vector<AttentionKind> others = {});

  /// Assigns other contexts and other data behind the same pointers.
  void assign(std::vector<CudaSequence> sequences);
  /// Sets another layer's options for the launches that follow: with the same number of sinks, or none.
  void set_options(const reference::AttentionOptions& options) { shape_.options = options; }

  /// Later launches use the plans and the workspace of `other`, whose kinds of layers include this step's, as layers of a model do.
  void share_workspace(CudaAttentionStep& other) { ops_ = other.ops_; }

  /// Launches the whole step as the decoder does: the plan, then one range for decode and one for prefill.
  void launch();
  void attend(int32_t first_sequence, int32_t num_sequences);

  void check() const;
  std::vector<float> values() const {
    run_.wait();
    return out_->values();
  }
  CudaRun& run() { return run_; }
  /// The largest NMSE that check() has seen.
  double worst() const { return worst_; }

 private:
  StepLimits limits(const std::vector<AttentionWindow>& windows, std::vector<AttentionKind> kinds) const;
  float scale() const;
  std::vector<float> q_of(size_t s) const;
  std::vector<float> k_of(size_t s) const;
  std::vector<float> v_of(size_t s) const;
  /// Of each query; none for those that see all keys.
  std::vector<std::vector<int32_t>> chosen_of(size_t s) const;
  void fill();
  std::vector<double> expected(size_t s) const;

  CudaAttentionShape shape_;
  CudaRun run_;
  CudaPagedBatch batch_;
  CudaPagedCache k_, v_;
  std::shared_ptr<cuda::AttentionOps> ops_;
  std::optional<CudaTensor> qkv_, out_;
  std::optional<Fp8Tensor> fp8_out_;  ///< used instead of out_
  std::optional<CudaArray<float>> sinks_;
  std::optional<CudaArray<int32_t>> chosen_;
  mutable double worst_ = 0.0;
};

}  // namespace minfer::test
