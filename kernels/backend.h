#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/error.h"
#include "kernels/forward_batch.h"
#include "kernels/op.h"
#include "kernels/op_args.h"
#include "kernels/sampling.h"
#include "kernels/stamps.h"
#include "kernels/tensor_view.h"

namespace minfer {

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
