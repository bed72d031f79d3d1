#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/attention_window.h"
#include "kernels/delta_net.h"
#include "kernels/dtype.h"

namespace minfer {

/// Index of an op in the decoder's op table; the same at every step.
using OpId = int32_t;

enum class OpKind : uint8_t {
  embed,
  rms_norm,  ///< norms of any kind
  linear,
  gate_up_swiglu,
  rope_kv_write,
  attention,
  moe_route,
  moe_gate_up_swiglu,
  moe_down,
  gather,
  sample,
  transfer,    ///< brings the step's inputs to the device, or its results back
  all_reduce,  ///< sums over ranks, with the norm that follows
  all_gather,  ///< brings the columns of all ranks to the first one
  broadcast,   ///< brings the first rank's tokens to the others
  activate,    ///< applies a function to each element
  latent_kv_write,
  head_linear,
  delta_conv,
  delta_rule,
  head_gate,
  short_conv,
  hidden_rows,
  mamba_scan,
  choose_keys,
  mix_streams,
  spread_columns,
};

std::string_view name(OpKind kind);

/// The tokens of a step that an op works on. An op on tokens of one phase counts entirely for that
/// phase; `all` and `logits` are shared.
enum class TokenScope : uint8_t { all, decode, prefill, logits };
std::string_view name(TokenScope scope);

/// The properties of an op that are known before any step runs: static data of the profiler and input of op_work().
struct OpInfo {
  std::string name;  ///< the same for every layer, e.g. "gate_up_swiglu"
  int32_t layer = -1;
  OpKind kind = OpKind::linear;
  TokenScope scope = TokenScope::all;
  int64_t in_features =
      0;  ///< products: K, of all heads together where each has its own; norm, embed, gather: hidden size; sample: vocabulary
  int64_t out_features = 0;  ///< columns of the output. linear: N of all fused weights together; gate_up: F
  /// Read once a step, whatever the batch. MoE: of one expert; embed: of one row.
  int64_t weight_bytes = 0;
  /// The bytes of these weights in the file, and the types, e.g. "iq4_xs to bf16", if the backend keeps any of them in another
  /// type; 0 and empty: it keeps the types of the file.
  int64_t file_bytes = 0;
  std::string converted = {};
  bool fp8_products = false;     ///< on FP8 tensor cores
  bool add_to_out = false;       ///< linear, norm: its output is an input too (LinearArgs::add_to_out)
  int32_t heads = 0;             ///< attention, rope: query heads
  int32_t kv_heads = 0;          ///< attention, rope
  int32_t head_size = 0;         ///< attention, rope
  int32_t v_head_size = 0;       ///< attention, rope: as in KvLayer
  DeltaNetShape delta_net = {};  ///< delta_conv, delta_rule, mamba_scan
  int64_t state_bytes = 0;       ///< short_conv: of one sequence
  bool v_in_k = false;           ///< likewise
  bool v_is_k = false;           ///< rope: as in RopeKvWriteArgs
  int32_t rotary_size = 0;       ///< rope: elements of a head that are rotated; 0: all
  AttentionWindow window = {};   ///< attention: as in AttentionArgs
  int32_t most_chosen = 0;       ///< attention, choose_keys: as in their arguments
  DType kv_dtype = DType::f32;
  int32_t experts = 0;            ///< MoE: of the layer
  int32_t experts_used = 0;       ///< MoE: per token
  int32_t ranks = 1;              ///< ops between ranks: ranks that take part
  int32_t in_element_bytes = 4;   ///< bytes of an element that the op reads
  int32_t out_element_bytes = 4;  ///< bytes of an element that it writes

  int32_t value_size() const { return v_head_size > 0 ? v_head_size : head_size; }
};

}  // namespace minfer
