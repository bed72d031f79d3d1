#include "kernels/work.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "kernels/tensor_view.h"

namespace minfer {
namespace {

constexpr int64_t kIndexBytes = 4;  ///< token ids, row numbers, expert ids
constexpr int64_t kF32Bytes = 4;

/// The part of a step that an op's scope covers.
struct Scope {
  int64_t tokens = 0;
  int64_t context = 0;
  int64_t attended = 0;
  int64_t sequences = 0;
};

Scope scope_of(TokenScope scope, const BatchShape& shape) {
  switch (scope) {
    case TokenScope::decode:
      return {shape.decode_tokens, shape.decode_context, shape.decode_attended, shape.decode_sequences};
    case TokenScope::prefill:
      return {shape.prefill_tokens, shape.prefill_context, shape.prefill_attended, shape.prefill_sequences};
    case TokenScope::logits:
      return {shape.logit_rows(), 0, 0, 0};
    case TokenScope::all:
      break;
  }
  return {shape.tokens(), shape.decode_context + shape.prefill_context,
          shape.decode_attended + shape.prefill_attended, shape.decode_sequences + shape.prefill_sequences};
}

/// The same for attention with a window.
Scope scope_of(TokenScope scope, BatchShape shape, AttentionWindow window) {
  for (const WindowShape& of_window : shape.windows) {
    if (of_window.window != window) continue;
    shape.decode_context = of_window.decode_context;
    shape.prefill_context = of_window.prefill_context;
    shape.decode_attended = of_window.decode_attended;
    shape.prefill_attended = of_window.prefill_attended;
    return scope_of(scope, shape);
  }
  Scope most = scope_of(scope, shape);
  most.context = std::min(most.context, most.sequences * (window.keys - 1) + most.tokens);
  most.attended = std::min(most.attended, most.tokens * window.keys);
  return most;
}

KernelWork rope_kv_work(const OpInfo& info, int64_t tokens) {
  const int64_t element = info.in_element_bytes;
  const int64_t q = int64_t{info.heads} * info.head_size;
  const int64_t k = int64_t{info.kv_heads} * info.head_size;
  const int64_t v = info.v_in_k ? 0 : int64_t{info.kv_heads} * info.value_size();
  const auto cached = static_cast<int64_t>(row_bytes(info.kv_dtype, k) + row_bytes(info.kv_dtype, v));
  const int64_t rotary_size = info.rotary_size > 0 ? info.rotary_size : info.head_size;
  // A pair takes four products and two sums.
  const int64_t rotations = (info.heads + info.kv_heads) * rotary_size * 3;
  const int64_t read = q + k + (info.v_is_k ? 0 : v);
  return {tokens * (read * element + rotary_size * kF32Bytes + kIndexBytes) + info.weight_bytes,
          tokens * (q * info.out_element_bytes + cached), tokens * rotations};
}

/// kv: square, add, scale, weight, beside the rotations.
KernelWork latent_kv_work(const OpInfo& info, int64_t tokens) {
  const int64_t rotated = int64_t{info.heads} * info.rotary_size;
  const auto cached = static_cast<int64_t>(row_bytes(info.kv_dtype, info.head_size));
  return {tokens * ((rotated + info.head_size) * info.in_element_bytes + info.rotary_size * kF32Bytes +
                    kIndexBytes) +
              info.weight_bytes,
          tokens * (rotated * info.out_element_bytes + cached),
          tokens * (3 * (rotated + info.rotary_size) + 4 * info.value_size())};
}

/// For each input a multiplication and an addition, then SiLU; for q and k also square, add and scale. States of sequences that begin
/// are not read, but count as if they were.
KernelWork delta_conv_work(const OpInfo& info, const Scope& scope) {
  const DeltaNetShape& shape = info.delta_net;
  const int64_t channels = shape.channels(), state = scope.sequences * shape.conv_state() * kF32Bytes;
  const int64_t row = channels * kF32Bytes;
  return {scope.tokens * row + state + info.weight_bytes, scope.tokens * row + state,
          scope.tokens * (channels * (2 * shape.conv_size + 3) + 6 * int64_t{shape.key_columns()})};
}

/// For each element of a state: decay, its product with k and their sum, the same with the update and with q.
KernelWork delta_rule_work(const OpInfo& info, const Scope& scope) {
  const DeltaNetShape& shape = info.delta_net;
  const int64_t state = scope.sequences * shape.delta_state() * kF32Bytes;
  const int64_t in = int64_t{shape.channels()} + shape.value_heads + shape.alphas();
  return {scope.tokens * in * kF32Bytes + state + info.weight_bytes,
          scope.tokens * shape.value_columns() * kF32Bytes + state, 7 * scope.tokens * shape.delta_state()};
}

/// For each element of a state: decay, its product with B and their sum, the same with C. For each column also the products with d and skip,
/// and the gate.
KernelWork mamba_scan_work(const OpInfo& info, const Scope& scope) {
  const DeltaNetShape& shape = info.delta_net;
  const int64_t state = scope.sequences * shape.delta_state() * kF32Bytes, columns = shape.value_columns();
  const int64_t in = shape.channels() + columns + shape.value_heads;
  return {scope.tokens * in * kF32Bytes + state + info.weight_bytes,
          scope.tokens * columns * kF32Bytes + state, scope.tokens * (5 * shape.delta_state() + 7 * columns)};
}

/// For each weight a multiplication and an addition, and the products on both sides. States count as in delta_conv_work().
KernelWork short_conv_work(const OpInfo& info, const Scope& scope) {
  const int64_t state = scope.sequences * info.state_bytes;
  return {scope.tokens * info.in_features * kF32Bytes + state + info.weight_bytes,
          scope.tokens * info.out_features * info.out_element_bytes + state,
          scope.tokens * 2 * (info.weight_bytes / kF32Bytes + info.out_features)};
}

/// A sigmoid and a product; with a norm also square, add, scale, weight.
KernelWork head_gate_work(const OpInfo& info, int64_t tokens) {
  const int64_t elements = tokens * info.in_features;
  return {elements * (info.in_element_bytes + kF32Bytes) + info.weight_bytes,
          elements * info.out_element_bytes, elements * (info.weight_bytes > 0 ? 8 : 4)};
}

/// All streams are read and written. Each element of them takes four operations, or a multiplication and an addition for each stream
/// (MixStreamsArgs::Kind::predict).
KernelWork mix_streams_work(const OpInfo& info, int64_t tokens) {
  const int64_t streams = tokens * info.in_features, x = tokens * info.out_features;
  const bool predicts = info.weight_bytes > 0 && !info.add_to_out;
  return {(streams + (info.add_to_out ? x : 0)) * kF32Bytes + info.weight_bytes, (streams + x) * kF32Bytes,
          streams * (predicts ? 2 * info.in_features / info.out_features : 4)};
}

/// Queries that attend to chosen keys read and multiply these alone; queries of a sequence may have chosen the same keys.
KernelWork attention_work(const OpInfo& info, const BatchShape& shape) {
  Scope scope = info.window ? scope_of(info.scope, shape, info.window) : scope_of(info.scope, shape);
  if (info.most_chosen > 0) {
    scope.attended = std::min(scope.attended, scope.tokens * info.most_chosen);
    scope.context = std::min(scope.context, scope.attended);
  }
  const int64_t q = int64_t{info.heads} * info.head_size;
  const int64_t out = int64_t{info.heads} * info.value_size();
  const auto keys = static_cast<int64_t>(row_bytes(info.kv_dtype, int64_t{info.kv_heads} * info.head_size));
  const auto values =
      static_cast<int64_t>(row_bytes(info.kv_dtype, int64_t{info.kv_heads} * info.value_size()));
  const int64_t cached = keys + (info.v_in_k ? 0 : values);
  // q k^T and the sum of v: a multiplication and an addition for every element of a head. A cap counts as no work.
  return {scope.tokens * q * info.in_element_bytes + scope.context * cached,
          scope.tokens * out * info.in_element_bytes, 2 * (q + out) * scope.attended};
}

/// For each head and key q k^T, a maximum, and a product with its sum. It is the most that it can be: queries that attend to all keys
/// choose none.
KernelWork choose_keys_work(const OpInfo& info, const Scope& scope) {
  const auto key = static_cast<int64_t>(row_bytes(info.kv_dtype, info.head_size));
  const int64_t row = info.in_features * info.in_element_bytes + info.heads * kF32Bytes;
  return {scope.tokens * row + scope.context * key, scope.tokens * info.most_chosen * kIndexBytes,
          scope.attended * info.heads * (2 * info.head_size + 3)};
}

/// Sums must leave and reach every rank: 2 (n - 1) / n of the addends (a ring's bytes; NCCL's "bus bandwidth").
KernelWork all_reduce_work(const OpInfo& info, int64_t tokens) {
  const int64_t elements = tokens * info.out_features;
  const int64_t part = elements * info.in_element_bytes, x = elements * kF32Bytes;
  const int64_t normed = info.weight_bytes > 0 ? elements * info.out_element_bytes : 0;
  // Its sum; with a norm also square, add, scale, weight.
  const int64_t flops = elements * (info.ranks - 1 + (normed > 0 ? 4 : 0));
  return {part + (info.add_to_out ? x : 0) + info.weight_bytes, x + normed, flops,
          2 * part * (info.ranks - 1) / info.ranks};
}

KernelWork moe_work(const OpInfo& info, int64_t tokens, int32_t experts_read) {
  const int64_t element = info.in_element_bytes;
  const int64_t pairs = tokens * info.experts_used;  // (token, expert)
  const int64_t most = std::min<int64_t>(info.experts, pairs);
  const int64_t weights =
      (experts_read < 0 ? most : std::min<int64_t>(experts_read, most)) * info.weight_bytes;
  const int64_t products = pairs * 2 * info.in_features * info.out_features;
  if (info.kind == OpKind::moe_gate_up_swiglu) {
    return {weights + tokens * info.in_features * element + pairs * kIndexBytes,
            pairs * info.out_features * info.out_element_bytes, 2 * products};
  }
  const int64_t out = tokens * info.out_features * info.out_element_bytes;
  return {weights + pairs * (info.in_features * element + kIndexBytes + kF32Bytes) + out, out, products};
}

}  // namespace

int64_t keys_read(int32_t context, int32_t queries, AttentionWindow window) {
  return context - window.first_seen(context - queries);
}

int64_t keys_attended(int32_t context, int32_t queries, AttentionWindow window) {
  const auto up_to = [](int64_t n) { return n * (n + 1) / 2; };
  /// Pairs of the first `count` queries of a sequence.
  const auto of_first = [&](int32_t count) {
    if (!window || count <= window.keys) return up_to(count);
    if (window.chunked) return count / window.keys * up_to(window.keys) + up_to(count % window.keys);
    return up_to(window.keys) + int64_t{count - window.keys} * window.keys;
  };
  return of_first(context) - of_first(context - queries);
}

void BatchShape::add_sequence(bool is_decode, int32_t context, int32_t queries, int32_t logit_rows) {
  (is_decode ? decode_sequences : prefill_sequences) += 1;
  (is_decode ? decode_tokens : prefill_tokens) += queries;
  (is_decode ? decode_logit_rows : prefill_logit_rows) += logit_rows;
  (is_decode ? decode_context : prefill_context) += context;
  (is_decode ? decode_attended : prefill_attended) += keys_attended(context, queries, {});
  if (is_decode) longest_context = std::max(longest_context, context);
  for (WindowShape& of : windows) {
    if (!of.window) continue;
    (is_decode ? of.decode_context : of.prefill_context) += keys_read(context, queries, of.window);
    (is_decode ? of.decode_attended : of.prefill_attended) += keys_attended(context, queries, of.window);
  }
}

void set_weights(OpInfo& info, std::span<const Weight> weights) {
  info.weight_bytes = info.file_bytes = 0;
  info.converted.clear();
  for (const Weight& weight : weights) {
    if (!weight) continue;
    const int64_t matrices = info.kind == OpKind::head_linear ? weight.count : 1;  // experts: one matrix
    info.weight_bytes += matrices * static_cast<int64_t>(weight.matrix_bytes());
    info.file_bytes += matrices * static_cast<int64_t>(weight.file_matrix_bytes());
    if (!weight.file_dtype) continue;
    const std::string conversion = fmt::format("{} to {}", name(*weight.file_dtype), name(weight.dtype));
    if (info.converted.find(conversion) != std::string::npos) continue;
    info.converted += (info.converted.empty() ? "" : ", ") + conversion;
  }
  if (info.converted.empty()) info.file_bytes = 0;
}

KernelWork op_work(const OpInfo& info, const BatchShape& shape, int32_t experts_read) {
  const Scope scope = scope_of(info.scope, shape);
  const int64_t tokens = scope.tokens;
  if (tokens == 0) return {};  // the op does not run, or does nothing
  const int64_t in = tokens * info.in_features * info.in_element_bytes;
  const int64_t out = tokens * info.out_features * info.out_element_bytes;
  const int64_t products = tokens * 2 * info.in_features * info.out_features;
  switch (info.kind) {
    case OpKind::embed:
      return {tokens * (info.weight_bytes + kIndexBytes), out, 0};
    case OpKind::rms_norm:  // square, add, scale, weight
      return {in + info.weight_bytes + (info.add_to_out ? out : 0), out, 4 * tokens * info.in_features};
    case OpKind::activate:  // an exponential, a quotient, a product
      return {in, out, 3 * tokens * info.in_features};
    case OpKind::linear:
      return {info.weight_bytes + in + (info.add_to_out ? out : 0), out, products};
    case OpKind::gate_up_swiglu:
      return {info.weight_bytes + in, out, 2 * products};
    case OpKind::rope_kv_write:
      return rope_kv_work(info, tokens);
    case OpKind::latent_kv_write:
      return latent_kv_work(info, tokens);
    case OpKind::head_linear:
      return {info.weight_bytes + in, out, products / info.heads};
    case OpKind::delta_conv:
      return delta_conv_work(info, scope);
    case OpKind::delta_rule:
      return delta_rule_work(info, scope);
    case OpKind::head_gate:
      return head_gate_work(info, tokens);
    case OpKind::short_conv:
      return short_conv_work(info, scope);
    case OpKind::hidden_rows:  // a copy
      return {in, out, 0};
    case OpKind::mamba_scan:
      return mamba_scan_work(info, scope);
    case OpKind::attention:
      return attention_work(info, shape);
    case OpKind::choose_keys:
      return choose_keys_work(info, scope);
    case OpKind::mix_streams:
      return mix_streams_work(info, tokens);
    case OpKind::moe_route:  // shift, exponential, sum
      return {tokens * info.experts * info.in_element_bytes,
              tokens * info.experts_used * (kIndexBytes + kF32Bytes), 3 * tokens * info.experts};
    case OpKind::moe_gate_up_swiglu:
    case OpKind::moe_down:
      return moe_work(info, tokens, experts_read);
    case OpKind::gather:
      return {in + tokens * kIndexBytes, out, 0};
    case OpKind::spread_columns:
      return {info.weight_bytes + in, out, 0};
    case OpKind::sample:  // shift, exponential, sum
      return {in, tokens * kIndexBytes, 3 * tokens * info.in_features};
    case OpKind::all_reduce:
      return all_reduce_work(info, tokens);
    case OpKind::all_gather:  // the mean over ranks
      return {in / info.ranks, in / info.ranks, 0, in / info.ranks * (info.ranks - 1) / info.ranks};
    case OpKind::broadcast:
      return {tokens * kIndexBytes, tokens * kIndexBytes, 0, tokens * kIndexBytes};
    case OpKind::transfer:
      break;
  }
  return {};
}

}  // namespace minfer
