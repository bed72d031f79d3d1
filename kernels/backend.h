#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/error.h"
#include "kernels/forward_batch.h"
#include "kernels/op.h"
#include "kernels/sampling.h"
#include "kernels/stamps.h"
#include "kernels/tensor_view.h"

namespace minfer {

/// One layer's paged KV cache: k and v [num_blocks, kv_heads, block_size, head_size] of `dtype` in backend
/// memory.
struct KvLayer {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::f32;
  int32_t num_blocks = 0;
  int32_t block_size = 0;
  int32_t kv_heads = 0;
  int32_t head_size = 0;
};

/// y = epilogue(x W^T + bias). Several weights over the same x are one op; their outputs stand side by side
/// in `out`.
struct LinearArgs {
  Tensor x;                             ///< [tokens, K]
  std::span<const Weight> weights;      ///< each [N_i, K]
  std::span<const Weight> biases = {};  ///< empty, or one a weight, each [1, N_i] f32 (a null Weight: none)
  Tensor out;                           ///< [tokens, sum of N_i]
  bool add_to_out = false;              ///< out += instead of out =: the residual connection
};

/// out = silu(x Wg^T) * (x Wu^T)   (Shazeer 2020, "GLU variants improve transformer")
struct GateUpArgs {
  Tensor x;     ///< [tokens, K]
  Weight gate;  ///< [F, K]
  Weight up;    ///< [F, K]
  Tensor out;   ///< [tokens, F]
};

/// Which two elements of a head are rotated together.
enum class RopePairing : uint8_t {
  interleaved,  ///< (2i, 2i+1): GGUF's llama
  halves,       ///< (i, i + rotary_size/2): "NeoX", qwen
};

/// RMS-normalises the heads of q and k if norms are given (Qwen3), rotates them, writes q back in place and
/// k, v to the cache.
struct RopeKvWriteArgs {
  Tensor qkv;  ///< [tokens, (heads + 2 kv_heads) * head_size]
  int32_t heads = 0;
  int32_t rotary_size = 0;  ///< elements of a head that are rotated, even; the rest passes through
  RopePairing pairing = RopePairing::interleaved;
  const float* cos_sin = nullptr;  ///< [max positions, rotary_size/2, 2] backend memory, all scaling applied
  Weight q_norm;                   ///< [1, head_size] f32 or null
  Weight k_norm;                   ///< [1, head_size] f32 or null
  float norm_eps = 0.0f;
  KvLayer kv;
};

/// Causal attention over the paged cache for sequences [first_sequence, first_sequence + num_sequences) of
/// the batch: softmax(q k^T * scale) v. Query head h reads KV head h / (heads / kv_heads).
struct AttentionArgs {
  Tensor qkv;  ///< [tokens, (heads + 2 kv_heads) * head_size]; only q is read
  int32_t heads = 0;
  float scale = 0.0f;
  KvLayer kv;
  int32_t first_sequence = 0;
  int32_t num_sequences = 0;
  Tensor out;  ///< [tokens, heads * head_size]; rows of the named sequences are written
};

/// Expert choice: softmax over all experts, the `experts_used` largest (ties: lower index), optionally
/// renormalised.
struct MoeRouteArgs {
  Tensor logits;  ///< [tokens, experts]
  int32_t experts_used = 0;
  bool normalise = true;  ///< divide the chosen weights by their sum
  float scale = 1.0f;
  int32_t* expert_ids = nullptr;    ///< [tokens, experts_used] out
  float* expert_weights = nullptr;  ///< [tokens, experts_used] out
};

/// hidden[t, j] = silu(x[t] Wg[e]^T) * (x[t] Wu[e]^T) with e = expert_ids[t, j].
struct MoeGateUpArgs {
  Tensor x;     ///< [tokens, K]
  Weight gate;  ///< experts x [F, K]
  Weight up;    ///< experts x [F, K]
  const int32_t* expert_ids = nullptr;
  int32_t experts_used = 0;
  Tensor out;  ///< [tokens * experts_used, F]
};

/// out[t] += sum over j in order of weights[t, j] * (hidden[t, j] Wd[e]^T).
struct MoeDownArgs {
  Tensor hidden;  ///< [tokens * experts_used, F]
  Weight down;    ///< experts x [K, F]
  const int32_t* expert_ids = nullptr;
  const float* expert_weights = nullptr;
  int32_t experts_used = 0;
  Tensor out;  ///< [tokens, K], added to
};

struct BackendInfo {
  std::string name;    ///< "cpu" or "cuda"
  std::string device;  ///< e.g. the processor's name, and its instruction set
  DType activation_dtype = DType::f32;
  int32_t threads = 1;
};

/// The operations a decoder needs, on one device. Called from one thread at a time (the engine thread). Ops
/// run in call order, asynchronously where the device allows; synchronize() waits. Shapes are the caller's
/// duty: a mismatch throws Error. Each op takes the OpId under which its time is recorded.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual BackendInfo info() const = 0;

  /// Memory of the device, 64-byte aligned, uninitialised. `what` names it in the error when there is not
  /// enough.
  virtual Buffer allocate(size_t bytes, std::string_view what) = 0;
  /// Makes a weight usable. The CPU backend keeps pointing at the host's bytes, which must outlive it.
  virtual Weight load(const HostTensor& tensor) = 0;
  virtual void copy_to_device(void* device, const void* host, size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, size_t bytes) = 0;
  virtual void synchronize() = 0;

  /// Ops between these two record into `stamps` (null: record nothing).
  virtual void begin_step(StepStamps* stamps) = 0;
  virtual void end_step() = 0;

  /// out[t] = table[token_ids[t]]; ids are valid rows of the table.
  virtual void embed(OpId op, const int32_t* token_ids, const Weight& table, const Tensor& out) = 0;
  /// out = x / sqrt(mean(x^2) + eps) * weight, per row (Zhang & Sennrich 2019).
  virtual void rms_norm(OpId op, const Tensor& x, const Weight& weight, float eps, const Tensor& out) = 0;
  virtual void linear(OpId op, const LinearArgs& args) = 0;
  virtual void gate_up_swiglu(OpId op, const GateUpArgs& args) = 0;
  virtual void rope_kv_write(OpId op, const ForwardBatch& batch, const RopeKvWriteArgs& args) = 0;
  virtual void attention(OpId op, const ForwardBatch& batch, const AttentionArgs& args) = 0;
  virtual void moe_route(OpId op, const MoeRouteArgs& args) = 0;
  virtual void moe_gate_up_swiglu(OpId op, const MoeGateUpArgs& args) = 0;
  virtual void moe_down(OpId op, const MoeDownArgs& args) = 0;
  /// out[i] = x[rows[i]].
  virtual void gather_rows(OpId op, const Tensor& x, const int32_t* rows, const Tensor& out) = 0;
  /// One token a row of logits [rows.size(), vocabulary]; `out` has the same size.
  virtual void sample(OpId op, const Tensor& logits, std::span<const SamplingRow> rows,
                      std::span<SampledToken> out) = 0;
};

/// The reference backend. `threads` 0: as many as the machine has cores.
std::unique_ptr<Backend> make_cpu_backend(int32_t threads);

}  // namespace minfer
