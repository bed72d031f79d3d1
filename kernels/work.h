#pragma once

#include <cstdint>
#include <span>

#include "kernels/op.h"
#include "kernels/tensor_view.h"

namespace minfer {

/// What an op must move and compute at the least: each input read once, each output written once.
struct KernelWork {
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t flops = 0;
  int64_t link_bytes =
      0;  ///< that the rank sends to others, and as many that it gets: bus bandwidth is their rate

  int64_t bytes() const { return bytes_read + bytes_written; }
  KernelWork& operator+=(const KernelWork& other) {
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    flops += other.flops;
    link_bytes += other.link_bytes;
    return *this;
  }
};

/// The sizes of a step that work depends on. `attended` counts (query token, cached token) pairs; `context`
/// counts cached tokens summed over sequences, each read once a step.
struct BatchShape {
  int32_t decode_sequences = 0;
  int32_t prefill_sequences = 0;
  int32_t decode_tokens = 0;
  int32_t prefill_tokens = 0;
  int32_t decode_logit_rows = 0;
  int32_t prefill_logit_rows = 0;
  int64_t decode_context = 0;
  int64_t prefill_context = 0;
  int64_t decode_attended = 0;
  int64_t prefill_attended = 0;

  int32_t tokens() const { return decode_tokens + prefill_tokens; }
  int32_t logit_rows() const { return decode_logit_rows + prefill_logit_rows; }
};

/// Sets what the op reads of `weights`, one matrix of each: weight_bytes, file_bytes and converted. Null weights count as nothing.
void set_weights(OpInfo& info, std::span<const Weight> weights);

/// The work of op `info` in a step of this shape. Products of experts read those that the router chose, `experts_read`
/// (StepStamps::Stamp). Where that is not known (-1) they count as min(experts, tokens * experts_used), the most that it can be.
KernelWork op_work(const OpInfo& info, const BatchShape& shape, int32_t experts_read = -1);

}  // namespace minfer
