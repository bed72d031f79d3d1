#include "kernels/bench/kernel_case.h"

#include <algorithm>
#include <array>

#include "kernels/base/error.h"

namespace minfer {

std::string_view name(SampleKind kind) {
  static constexpr std::array<std::string_view, 4> kNames{"greedy", "temperature 0.8", "top_k 50",
                                                          "top_p 0.9"};
  return kNames[static_cast<size_t>(kind)];
}

std::string KernelCase::shape() const {
  switch (info.kind) {
    case OpKind::linear:
      return fmt::format("N {}, K {}", info.out_features, info.in_features);
    case OpKind::gate_up_swiglu:
      return fmt::format("N 2 x {}, K {}", info.out_features, info.in_features);
    case OpKind::moe_gate_up_swiglu:
      return fmt::format("{} of {} experts, N 2 x {}, K {}", info.experts_used, info.experts,
                         info.out_features, info.in_features);
    case OpKind::moe_down:
      return fmt::format("{} of {} experts, N {}, K {}", info.experts_used, info.experts, info.out_features,
                         info.in_features);
    case OpKind::moe_route:
      return fmt::format("{} of {} experts", info.experts_used, info.experts);
    case OpKind::rope_kv_write:
      return fmt::format("{}+2x{} heads of {}", info.heads, info.kv_heads, info.head_size);
    case OpKind::latent_kv_write:
      return fmt::format("{} heads, {} of {} rotated", info.heads, info.rotary_size, info.head_size);
    case OpKind::head_linear:
      return fmt::format("{} heads, N {}, K {}", info.heads, info.out_features / info.heads,
                         info.in_features / info.heads);
    case OpKind::attention:
      return fmt::format("{}/{} heads of {}, {} x {}", info.heads, info.kv_heads, info.head_size, sequences,
                         context) +
             (info.window
                  ? fmt::format(", {} {}", info.window.chunked ? "chunks of" : "window", info.window.keys)
                  : "") +
             (logit_cap > 0.0f ? fmt::format(", cap {}", logit_cap) : "");
    case OpKind::sample:
      return fmt::format("{} wide, {}", info.in_features, name(sampling));
    default:
      return fmt::format("{} wide", info.in_features);
  }
}

BatchShape KernelCase::batch_shape() const {
  const int64_t cached = int64_t{sequences} * context;
  WindowShape window{.window = info.window};
  BatchShape batch;
  if (is_decode()) {
    batch.decode_sequences = batch.decode_tokens = sequences;
    batch.decode_context = batch.decode_attended = cached;
    window.decode_context = window.decode_attended = sequences * keys_read(context, 1, info.window);
  } else {
    batch.prefill_sequences = sequences;
    batch.prefill_tokens = tokens;
    batch.prefill_context = cached;
    batch.prefill_attended = cached * (context + 1) / 2;
    window.prefill_context = cached;
    window.prefill_attended = sequences * keys_attended(context, context, info.window);
  }
  if (info.window) batch.windows[0] = window;
  if (info.scope == TokenScope::logits) batch.prefill_logit_rows = tokens;
  return batch;
}

StepLimits step_limits(std::span<const KernelCase> cases, int32_t block_size, int64_t most_cols,
                       int32_t max_stamps) {
  const OpInfo& info = cases.front().info;
  const bool is_down = info.kind == OpKind::moe_down;
  const bool is_of_logits = info.kind == OpKind::sample;
  StepLimits limits{.max_sequences = 1,
                    .max_logit_rows = 1,
                    .max_blocks = 1,
                    .max_stamps = max_stamps,
                    .vocab_size = is_of_logits ? info.in_features : 1,
                    .hidden_size = is_of_logits ? most_cols : std::max(most_cols, info.in_features),
                    .ffn_size = is_down ? info.in_features : info.out_features,
                    .heads = std::max(1, info.heads),
                    .latent_row = info.v_in_k ? info.head_size : 0,
                    .experts = info.experts,
                    .experts_used = info.experts_used};
  if (is_down) limits.hidden_size = std::max(limits.hidden_size, info.out_features);
  if (info.kind == OpKind::linear || info.kind == OpKind::head_linear || is_of_logits) limits.ffn_size = 1;
  for (const KernelCase& c : cases) {
    const bool has_rows = info.scope == TokenScope::logits;
    const AttentionKind kind{std::max(1, c.info.kv_heads), std::max(1, c.info.head_size), c.info.window};
    if (std::ranges::count(limits.attention_kinds, kind) == 0) limits.attention_kinds.push_back(kind);
    limits.qkv_size =
        std::max(limits.qkv_size, int64_t{c.info.heads + 2 * c.info.kv_heads} * c.info.head_size);
    limits.head_size = std::max(limits.head_size, kind.head_size);
    limits.max_tokens = std::max(limits.max_tokens, c.tokens);
    limits.max_blocks = std::max(limits.max_blocks, blocks_of_sequence(c, block_size));
    limits.max_sequences = std::max(limits.max_sequences, has_rows ? c.tokens : c.sequences);
    if (has_rows) limits.max_logit_rows = std::max(limits.max_logit_rows, c.tokens);
  }
  limits.logit_slice = limits.max_logit_rows;
  return limits;
}

}  // namespace minfer
