#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/op.h"

namespace minfer {

struct Weight;

/// The least that an op must move and compute: each input read once, each output written once.
struct KernelWork {
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t flops = 0;
  int64_t link_bytes =
      0;  ///< bytes that the rank sends to others, and as many that it receives: bus bandwidth is their rate

  int64_t bytes() const { return bytes_read + bytes_written; }
  KernelWork& operator+=(const KernelWork& other) {
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    flops += other.flops;
    link_bytes += other.link_bytes;
    return *this;
  }
};

/// Cached tokens that attention reads, each once, for a sequence of `context` tokens whose last `queries` are computed.
int64_t keys_read(int32_t context, int32_t queries, AttentionWindow window);
/// The number of (query token, cached token) pairs of the same attention.
int64_t keys_attended(int32_t context, int32_t queries, AttentionWindow window);

/// The tokens that layers with a window attend to; BatchShape has those of layers without.
struct WindowShape {
  AttentionWindow window = {};
  int64_t decode_context = 0;
  int64_t prefill_context = 0;
  int64_t decode_attended = 0;
  int64_t prefill_attended = 0;
};

/// The sizes of a step that work depends on. `attended` counts (query token, cached token) pairs; `context`
/// counts cached tokens summed over sequences, each read once a step.
struct BatchShape {
  static constexpr int kMaxWindows = 2;  ///< the most window kinds of a model, beside none

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
  std::array<WindowShape, kMaxWindows> windows = {};  ///< a window of 0 keys: unused
  int32_t longest_context = 0;                        ///< the longest of the sequences in decode_context

  /// Counts a sequence of `context` tokens whose last `queries` are computed, for all windows that are set.
  void add_sequence(bool is_decode, int32_t context, int32_t queries, int32_t logit_rows);

  int32_t tokens() const { return decode_tokens + prefill_tokens; }
  int32_t logit_rows() const { return decode_logit_rows + prefill_logit_rows; }
};

/// Sets what the op reads of one matrix of each weight: weight_bytes, file_bytes and converted. Null weights count as nothing.
void set_weights(OpInfo& info, std::span<const Weight> weights);

/// The work of op `info` in a step of this shape. Attention with a window that the shape lacks counts as the most that it can be.
/// Products of experts read the experts that the router chose, `experts_read` (StepStamps::Stamp); if that is not known (-1), they
/// count as min(experts, tokens * experts_used), the most that it can be.
KernelWork op_work(const OpInfo& info, const BatchShape& shape, int32_t experts_read = -1);

}  // namespace minfer
