#pragma once

#include <cstdint>

#include "kernels/op.h"

namespace minfer {

/// What an op must move and compute at the least: each input read once, each output written once.
struct KernelWork {
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t flops = 0;

  int64_t bytes() const { return bytes_read + bytes_written; }
  KernelWork& operator+=(const KernelWork& other) {
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    flops += other.flops;
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

/// The work of op `info` in a step of this shape. MoE ops count min(experts, tokens * experts_used) experts
/// as read: an upper bound, since the router decides at run time.
KernelWork op_work(const OpInfo& info, const BatchShape& shape);

}  // namespace minfer
