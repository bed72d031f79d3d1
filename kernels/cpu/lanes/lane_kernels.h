#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/lanes/isa.h"

namespace minfer::cpu {

/// Number of keys that attention takes at a time, counted from position 0: the unit of its running softmax.
inline constexpr int kKeyTile = 64;
/// Rows (query token times query head) of one KV head that share a key tile while it is in the cache.
inline constexpr int kQueryTileRows = 64;

/// A piece of attention for one thread: consecutive query tokens of one sequence, and query heads of
/// one KV head.
struct AttentionTile {
  const float* q = nullptr;  ///< [tokens, q_stride]: the first of the group's heads, which follow each other
  int64_t q_stride = 0;
  float* out = nullptr;  ///< [tokens, out_stride], heads in the order of q's
  int64_t out_stride = 0;
  const int32_t* positions = nullptr;  ///< [tokens], ascending
  int32_t tokens = 0;
  int32_t group = 0;  ///< query heads of a KV head
  float scale = 0.0f;
  AttentionWindow window = {};
  /// [num_chosen] positions of the keys that its one token sees, ascending; null: those that positions and window say.
  const int32_t* chosen = nullptr;
  int32_t num_chosen = 0;
  float logit_cap = 0.0f;        ///< 0: none
  const float* sinks = nullptr;  ///< [group] or null
  const KvLayer* kv = nullptr;
  int32_t kv_head = 0;
  const int32_t* blocks = nullptr;  ///< the sequence's row of the block table
  float* scratch = nullptr;         ///< see lay_out() in attention_lanes.h; 64-byte aligned
};

/// Scores of the keys at positions [begin, end) of one query token (ChooseKeysArgs), for one thread.
struct KeyScoreTile {
  AttentionTile query;             ///< one token: q, scale, kv, blocks and scratch alone
  int32_t heads = 0;               ///< any number of them, side by side in q
  const float* weights = nullptr;  ///< [heads]
  int32_t begin = 0, end = 0;
  float* scores = nullptr;  ///< [end - begin]
};

/// Channels of a delta net's convolution for one thread: neighbouring channels of one sequence.
struct DeltaConvTile {
  const float* x = nullptr;  ///< [tokens, stride]
  float* out = nullptr;      ///< likewise
  int64_t stride = 0, out_stride = 0;
  const float* weight = nullptr;  ///< [conv_size, weight_stride]
  const float* bias = nullptr;    ///< [channels] or null
  float* state = nullptr;         ///< [conv_size - 1, weight_stride]
  int64_t weight_stride = 0;
  bool is_fresh = false;  ///< the state counts as zeros
  int32_t tokens = 0;
  int32_t channels = 0;
  int32_t conv_size = 0;
  float head_scale = 0.0f;  ///< the channels are a head of q or k: normed, and times this; 0: they are not
};

/// The delta rule of one value head of one sequence.
struct DeltaRuleTile {
  const float *q = nullptr, *k = nullptr, *v = nullptr;  ///< [tokens, stride]
  int64_t stride = 0;
  const float* gates = nullptr;  ///< [tokens, gate_stride]: a and b
  int64_t gate_stride = 0;
  const float* decays =
      nullptr;  ///< [tokens, decay_stride]: an a for each row of the state; null: `gates` has it
  int64_t decay_stride = 0;
  float* out = nullptr;  ///< [tokens, out_stride]
  int64_t out_stride = 0;
  float* state = nullptr;  ///< [key_size, value_size]
  bool is_fresh = false;   ///< it counts as zeros
  int32_t tokens = 0;
  int32_t key_size = 0;
  int32_t value_size = 0;
  float* scratch = nullptr;  ///< [key_size, kDeltaColumns] scratch
};

/// The state-space model of one head of one sequence: a delta rule that corrects nothing, whose q, k and v are C, B and x, and whose gates
/// are e^(decay d) and d.
struct MambaScanTile {
  DeltaRuleTile rule;
  const float* gate = nullptr;  ///< [tokens, gate_stride]
  int64_t gate_stride = 0;
  float skip = 0.0f;
};

/// Columns of a state that stay in the first-level cache together while tokens pass by.
inline constexpr int32_t kDeltaColumns = 32;

/// The inner loops that are compiled once for each instruction set. All variants give the same bits.
struct LaneKernels {
  /// out = x / sqrt(mean(x^2) + eps) * weight; `out` may be `x`.
  void (*rms_norm_row)(const float* x, const float* weight, float eps, int64_t size, float* out);
  /// out[i] = e^((x[i] - shift) / divisor); `out` may be `x`.
  void (*exp_row)(const float* x, float shift, float divisor, int64_t size, float* out);
  /// The weights of tokens in a draw (kernels/token_weight.h). `x`: logits, none NaN. `largest`: the largest of them, finite.
  void (*weight_row)(const float* x, float largest, float temperature, int64_t size, float* out);
  /// The largest element; NaN counts as -inf.
  float (*max_row)(const float* x, int64_t size);
  void (*attend)(const AttentionTile& tile);
  void (*score_keys)(const KeyScoreTile& tile);
  void (*delta_conv)(const DeltaConvTile& tile);
  void (*delta_rule)(const DeltaRuleTile& tile);
  void (*mamba_scan)(const MambaScanTile& tile);
  /// out = x times the function of the gate; `out` may be `x`.
  void (*gate_row)(const float* x, const float* gate, HeadGateArgs::Function function, int64_t size,
                   float* out);
};

extern const LaneKernels kLaneKernelsPortable, kLaneKernelsAvx2, kLaneKernelsAvx512;

inline const LaneKernels& lane_kernels(Isa isa) {
  return choose(isa, kLaneKernelsPortable, kLaneKernelsAvx2, kLaneKernelsAvx512);
}

}  // namespace minfer::cpu
