#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/attention_window.h"
#include "kernels/delta_net.h"
#include "kernels/dtype.h"

namespace minfer {

/// Position of an op in the decoder's op table; the same at every step.
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
  transfer,    ///< the step's inputs on their way to the device, or its results on their way back
  all_reduce,  ///< sums over ranks, with the norm that follows
  all_gather,  ///< columns of all ranks to the first one
  broadcast,   ///< the first rank's tokens to the others
  activate,    ///< a function of each element
  latent_kv_write,
  head_linear,
  delta_conv,
  delta_rule,
  head_gate,
  short_conv,
};

std::string_view name(OpKind kind);

/// Which tokens of a step an op works on. Ops of one kind of token count wholly for its phase; `all` and
/// `logits` are shared.
enum class TokenScope : uint8_t { all, decode, prefill, logits };
std::string_view name(TokenScope scope);

/// What is known of an op before any step runs: static data of the profiler and input of op_work().
struct OpInfo {
  std::string name;  ///< the same for every layer, e.g. "gate_up_swiglu"
  int32_t layer = -1;
  OpKind kind = OpKind::linear;
  TokenScope scope = TokenScope::all;
  int64_t in_features =
      0;  ///< products: K, of all heads together where each has its own; norm, embed, gather: hidden size; sample: vocabulary
  int64_t out_features = 0;  ///< columns of the output. linear: N of all fused weights together; gate_up: F
  /// Streamed once a step whatever the batch. MoE: of one expert; embed: of one row.
  int64_t weight_bytes = 0;
  /// What these weights take in the file, where the backend keeps any of them in another type, and from which type to which, e.g.
  /// "iq4_xs to bf16"; 0 and empty: it does not.
  int64_t file_bytes = 0;
  std::string converted = {};
  bool fp8_products = false;     ///< on FP8 tensor cores
  bool add_to_out = false;       ///< linear, norm: its output is an input too (LinearArgs::add_to_out)
  int32_t heads = 0;             ///< attention, rope: query heads
  int32_t kv_heads = 0;          ///< attention, rope
  int32_t head_size = 0;         ///< attention, rope
  int32_t v_head_size = 0;       ///< attention, rope: as KvLayer has it
  DeltaNetShape delta_net = {};  ///< delta_conv, delta_rule
  int64_t state_bytes = 0;       ///< short_conv: of a sequence
  bool v_in_k = false;           ///< likewise
  bool v_is_k = false;           ///< rope: as RopeKvWriteArgs has it
  int32_t rotary_size = 0;       ///< rope: elements of a head that are rotated; 0: all
  AttentionWindow window = {};   ///< attention: as AttentionArgs has it
  DType kv_dtype = DType::f32;
  int32_t experts = 0;            ///< MoE: of the layer
  int32_t experts_used = 0;       ///< MoE: per token
  int32_t ranks = 1;              ///< that take part, of ops between them
  int32_t in_element_bytes = 4;   ///< of an element that the op reads
  int32_t out_element_bytes = 4;  ///< and of one that it writes

  int32_t value_size() const { return v_head_size > 0 ? v_head_size : head_size; }
};

}  // namespace minfer
