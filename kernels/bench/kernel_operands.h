#pragma once

#include <memory>
#include <random>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bench/kernel_case.h"
#include "kernels/cuda/product/product.h"

namespace minfer {

/// Everything that one op needs to run by itself: a backend, the op's weights and memory for its
/// operands, filled with random numbers. There may be several copies of each; every run takes the next
/// copy. So its data is as cold as in a step, where the other layers have passed through the cache.
class KernelOperands {
 public:
  /// The maximum number of copies.
  static constexpr int64_t kMostCopies = 64;

  /// For `cases` of one op. `tensors`: its weights, in the order in which the op names them. The copies take
  /// `cold_bytes` together, up to kMostCopies copies; 0: one copy.
  KernelOperands(std::span<const HostTensor> tensors, std::unique_ptr<Backend> backend,
                 std::vector<KernelCase> cases, int32_t block_size, int64_t cold_bytes);

  Backend& backend() { return *backend_; }
  const std::vector<KernelCase>& cases() const { return cases_; }  ///< with info.weight_bytes

  /// The inputs of a step of this case, in host memory; valid until the next call.
  ForwardBatch host_batch(const KernelCase& c);
  /// One row for each token in a case of sample, else none; valid until the next call.
  std::span<const SamplingRow> sampling_rows(const KernelCase& c);

  /// Call it first in a step; it is recorded as `op`. As in a model, this norm stands between the step's inputs and the kernels
  /// that read them early (kernels/cuda/launch/launch.h).
  void run_norm(OpId op);
  /// Runs the op once, recorded as `op`, in a step with this batch (device memory). In a case of sample,
  /// which a step does itself, it only returns the logits to draw from.
  Tensor run(const KernelCase& c, const ForwardBatch& batch, OpId op);
  /// The number of copies that a case's runs go through.
  int64_t copies(const KernelCase& c) const;
  /// True if the copies together exceed the cache, so that the runs keep emptying it themselves.
  bool exceed_cache(const KernelCase& c) const { return copies(c) * c.work().bytes() >= cold_bytes_; }
  /// Reads memory larger than the cache, recorded as `op`.
  void flush_cache(OpId op);

  /// The case as plain bf16 products, one for each copy, without bias or SwiGLU. Empty if it is no product.
  std::vector<cuda::Product> products(const KernelCase& c) const;

  /// The operands that a run reads and writes; the runs of a case go through the copies in order.
  Tensor input(const KernelCase& c, int64_t copy) const;
  Tensor output(const KernelCase& c, int64_t copy) const;
  KvLayer kv_layer(const KernelCase& c, int64_t copy) const;

 private:
  void load_weights(std::span<const HostTensor> tensors);
  void prepare();
  void allocate();
  void fill(const Buffer& memory, DType content);
  void fill_ids();
  int64_t half_kv_bytes(const KernelCase& c) const;
  int32_t sequence_blocks(const KernelCase& c) const { return blocks_of_sequence(c, block_size_); }
  int32_t* ids_of(const KernelCase& c, int64_t copy) const;
  float* expert_weights_of(const KernelCase& c, int64_t copy) const;

  std::unique_ptr<Backend> backend_;
  std::vector<KernelCase> cases_;
  int32_t block_size_;
  int64_t cold_bytes_;
  std::mt19937 random_{1};
  int64_t next_copy_ = 0;

  std::vector<Buffer> host_weights_;          ///< copies, if the backend reads them in place
  std::vector<std::vector<Weight>> weights_;  ///< of each copy
  Buffer inputs_;                             ///< activations or logits, copy after copy
  Buffer outputs_;                            ///< activations
  Buffer kv_;                                 ///< K of a copy, then V of it
  Buffer ids_;                                ///< token ids, or expert ids of each token
  Buffer expert_weights_;                     ///< f32, as many as expert ids
  Buffer rope_table_;  ///< of random numbers: the time of a rotation does not depend on its angle
  Buffer norm_row_;    ///< f32
  Buffer filler_memory_, filler_output_;
  Weight filler_;  ///< a matrix three times as large as the cache
  Tensor filler_x_, filler_out_;

  std::vector<int32_t> token_ids_, positions_, slots_, query_start_, context_len_, block_table_, logit_rows_;
  std::vector<BlockTableChange> changes_;
  std::vector<SamplingRow> rows_;
};

/// Bytes of copies that keep a backend's cache cold.
int64_t cold_bytes(const BackendInfo& info);

/// Microseconds of each run of a case, over `repetitions` steps of many runs each (sample: several steps of
/// one run). A run's time is from its begin to the begin of what follows, as in step records. Runs follow each
/// other in a CUDA graph, over cold operands. The first calls are not measured.
std::vector<double> measure_kernel_us(KernelOperands& operands, const KernelCase& c, int32_t repetitions);

/// Hardware counters of one run of a case, over cold operands; not for sample, which a step does itself. Call it after
/// measure_kernel_us(). Returns an error text; empty: no error.
std::string count_kernel(KernelOperands& operands, const KernelCase& c, OpCounters& out);

}  // namespace minfer
