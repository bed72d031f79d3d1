#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "kernels/activation.h"
#include "kernels/attention_window.h"
#include "kernels/base/error_types.h"
#include "kernels/delta_net.h"
#include "kernels/tensor_view.h"

namespace minfer {

/// The properties in which layers may differ for attention.
struct AttentionKind {
  int32_t kv_heads = 1;
  int32_t head_size = 0;        ///< of q and k
  AttentionWindow window = {};  ///< AttentionArgs::window
  int32_t heads = 0;            ///< of queries; 0: StepLimits::heads

  bool operator==(const AttentionKind&) const = default;
};

/// Sizes that no step exceeds. A backend that must not allocate while it runs uses them to size its workspace.
struct StepLimits {
  int32_t max_tokens = 0;      ///< tokens of a step
  int32_t max_sequences = 0;   ///< sequences of a step
  int32_t max_logit_rows = 0;  ///< rows of logits of a step
  int32_t logit_slice = 0;     ///< rows of logits that are computed and sampled at a time
  int32_t max_blocks = 0;      ///< blocks of a sequence: row length of the block table
  int32_t max_stamps = 0;      ///< ops of a step
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t ffn_size = 0;  ///< F of gate, up and down; in MoE layers of one expert
  int64_t qkv_size = 0;  ///< (heads + 2 kv_heads) * head_size
  int32_t heads = 0;
  int32_t head_size = 0;   ///< of the input of the product behind attention
  int32_t latent_row = 0;  ///< head size of latent attention; 0: no latent attention
  int32_t experts = 0;     ///< 0: dense
  int32_t experts_used = 0;
  int32_t routed_layers = 0;                        ///< layers whose chosen experts are counted
  std::vector<AttentionKind> attention_kinds = {};  ///< of all layers, each once
  bool has_window_table = false;                    ///< ForwardBatch::window_row is set
  bool is_recurrent = false;                        ///< ForwardBatch::state_slots is set
  int32_t scored_keys = 0;  ///< the most keys that choose_keys() scores for a query; 0: no layer chooses keys
};

/// One layer's paged KV cache: k [num_blocks, kv_heads, block_size, head_size] and v [num_blocks, kv_heads, block_size,
/// value_size()] of `dtype` in backend memory. In latent attention k alone, whose rows begin with the values. Keys by which others are chosen
/// (ChooseKeysArgs) have no values: their layer is of the latter form.
struct KvLayer {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::f32;
  int32_t num_blocks = 0;
  int32_t block_size = 0;
  int32_t kv_heads = 0;
  int32_t head_size = 0;    ///< of q and k
  int32_t v_head_size = 0;  ///< of v and of attention's output; 0: as head_size
  bool v_in_k = false;      ///< a value is the first value_size() elements of its key; v is k

  int32_t value_size() const { return v_head_size > 0 ? v_head_size : head_size; }
  /// Elements from one row of v to the next.
  int32_t value_stride() const { return v_in_k ? head_size : value_size(); }
};

/// out[t] = scale * table[token_ids[t] - first_token]. Token ids are in [0, vocab_size). If the table is one rank's share, tokens that it
/// does not have become rows of zeros.
struct EmbedArgs {
  const int32_t* token_ids = nullptr;  ///< one a row of out
  Weight table;
  int32_t first_token = 0;  ///< the token of the table's first row
  int32_t vocab_size = 0;   ///< of all ranks together
  float scale = 1.0f;       ///< of the rows (Gemma, Granite)
  Tensor out;               ///< [tokens, hidden]
};

/// The function of a row in front of its weight and bias.
enum class NormKind : uint8_t {
  rms,    ///< x / sqrt(mean(x^2) + eps) (Zhang & Sennrich 2019, "Root mean square layer normalization")
  layer,  ///< (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) (Ba et al. 2016, "Layer normalization")
  none,   ///< x: a row that is only converted, scaled or added
  cut,  ///< max(x - mean(x) - NormArgs::cut sqrt(mean((x - mean(x))^2)), 0): the largest elements alone (Gemma 3n's Gaussian top-k)
};

/// out = scale * (norm(x) * weight + bias), or += instead of =, per row.
struct NormArgs {
  Tensor x;  ///< [rows, cols]
  NormKind kind = NormKind::rms;
  /// [1, cols] f32; null if and only if the kind is none or cut. An RMS norm of groups has [groups, cols]: row r of x takes row r mod groups.
  Weight weight = {};
  Weight bias = {};  ///< [1, cols] f32 or null
  float eps = 0.0f;  ///< of the kinds rms and layer
  float cut = 0.0f;  ///< of the kind cut: standard deviations above the mean
  float scale = 1.0f;
  bool add_to_out =
      false;   ///< a norm behind a block of a layer adds to the residual stream; then out is f32 and not x
  Tensor out;  ///< [rows, cols]; may be x

  /// True if this is rms(x) * weight, one weight for all rows, and no more.
  bool is_plain_rms() const {
    return kind == NormKind::rms && !bias && scale == 1.0f && !add_to_out && weight.rows <= 1;
  }
};

/// out = f(x), element by element.
struct ActivateArgs {
  Tensor x;  ///< [rows, cols]
  Activation activation;
  Tensor out;  ///< [rows, cols]; may be x
};

/// The end of a block of a layer whose product is spread over ranks: x = sum over ranks of part, in their order (+ x), then
/// normed = rms_norm(x). A rank's part is the product of its columns.
struct AllReduceArgs {
  Tensor part;            ///< [tokens, hidden] f32 or the activation type; may be x unless add_to_x
  Tensor x;               ///< [tokens, hidden] f32; the same bits in all ranks afterwards
  bool add_to_x = false;  ///< x += instead of x =: the residual connection
  Weight norm = {};       ///< [1, hidden] f32; null: no norm follows
  float norm_eps = 0.0f;
  Tensor normed = {};  ///< [tokens, hidden] of the activation type
};

/// The RMS norm in front of products that take x before it (Target::takes_norm()): x is f32 then.
struct FrontNorm {
  Weight weight;  ///< [1, K] f32; null: x is as it should be
  float eps = 0.0f;
};

/// The weights of one product: six at the most.
class WeightList {
 public:
  WeightList() = default;
  template <std::convertible_to<std::span<const Weight>> Weights>
  WeightList(const Weights& weights) : WeightList(std::data(weights), std::size(weights)) {}
  WeightList(const Weight* weights, size_t count) : count_(count) {
    if (count > weights_.size()) throw Error("a product of more weights than six");
    std::copy_n(weights, count, weights_.begin());
  }
  WeightList(std::initializer_list<Weight> weights) : WeightList(weights.begin(), weights.size()) {}

  operator std::span<const Weight>() const { return {weights_.data(), count_}; }
  const Weight* begin() const { return weights_.data(); }
  const Weight* end() const { return begin() + count_; }
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  const Weight& operator[](size_t index) const { return weights_[index]; }

 private:
  std::array<Weight, 6> weights_ = {};
  size_t count_ = 0;
};

/// y = epilogue(x W^T + bias). Several weights over the same x are one op; their outputs stand side by side
/// in `out`.
struct LinearArgs {
  Tensor x;                 ///< [tokens, K]
  WeightList weights;       ///< each [N_i, K]
  WeightList biases = {};   ///< empty, or one a weight, each [1, N_i] f32 (a null Weight: none)
  Tensor out;               ///< [tokens, sum of N_i]
  bool add_to_out = false;  ///< out += instead of out =: the residual connection
  FrontNorm norm = {};
};

/// out = activation(x Wg^T + bg, x Wu^T + bu)
struct GateUpArgs {
  Tensor x;     ///< [tokens, K]
  Weight gate;  ///< [F, K]
  Weight up;    ///< [F, K]
  Tensor out;   ///< [tokens, F]
  GateActivation activation = GateActivation::silu;
  Weight gate_bias = {};  ///< [1, F] f32 or null
  Weight up_bias = {};    ///< [1, F] f32 or null
  FrontNorm norm = {};
};

/// The two elements of a head that are rotated together.
enum class RopePairing : uint8_t {
  interleaved,  ///< (2i, 2i+1): GGUF's llama
  halves,       ///< (i, i + rotary_size/2): "NeoX", qwen
};

/// Normalises the heads of q and k if norms are given (Qwen3), rotates them, scales q, and writes q to q_out and k
/// and v to the cache; a cache with KvLayer::v_in_k has k alone, and so has qkv behind q. Layers may have their own tables, for another base or another number of rotated elements.
struct RopeKvWriteArgs {
  Tensor
      qkv;  ///< [tokens, (heads + kv_heads) * head_size + kv_heads * value_size] f32; v_is_k: without the latter
  Tensor q_out;             ///< [tokens, heads * head_size] of the activation type; without data: q in place
  int32_t heads = 0;        ///< of q; 0: qkv has keys and values alone
  int32_t rotary_size = 0;  ///< elements of a head that are rotated, even; the rest stays as it is
  RopePairing pairing = RopePairing::interleaved;
  const float* cos_sin = nullptr;  ///< [max positions, rotary_size/2, 2] backend memory, all scaling applied
  Weight q_norm;                   ///< [1, head_size] f32 or null; layer_norms: [heads, head_size]
  Weight k_norm;                   ///< [1, head_size] f32 or null; layer_norms: [kv_heads, head_size]
  bool layer_norms = false;        ///< of q and k, with weights for each head (Command-R+)
  float norm_eps = 0.0f;
  KvLayer kv;
  const float* q_scale = nullptr;  ///< [max positions] f32 backend memory: q's factor by position; null: 1
  Weight v_norm = {};              ///< [1, value_size] f32 or null
  bool v_is_k = false;  ///< qkv has no v: the values are the keys before norm and rotation (Gemma 4)
  /// Each head of q in qkv is followed by its gate (HeadGateArgs), which stays as it is; q goes to q_out (Qwen3-Next).
  bool q_has_gate = false;
  bool norms_last = false;  ///< norms of q and k stand behind the rotation (Hunyuan)
};

/// The same for latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.2 and 2.1.3), whose cache has one row a token for all
/// heads, [norm(latent) | rotated key]. Rotates the last rotary_size elements of each head of q and of kv, normalises the elements
/// before them in kv, and writes kv to the cache. q's heads differ in size from the cache's rows: products bring their first elements to
/// the latent's size (HeadLinearArgs), and q_out gets the rotated ones behind those.
struct LatentKvWriteArgs {
  Tensor q;   ///< [tokens, heads * (any + rotary_size)] f32; each head's last elements are read
  Tensor kv;  ///< [tokens, head_size] f32
  Tensor
      q_out;  ///< [tokens, heads * head_size] of the activation type; each head's last rotary_size elements are written
  int32_t heads = 0;
  int32_t rotary_size = 0;  ///< even
  RopePairing pairing = RopePairing::interleaved;
  const float* cos_sin = nullptr;  ///< as in RopeKvWriteArgs; null: nothing is rotated
  Weight kv_norm;                  ///< [1, head_size - rotary_size] f32
  float norm_eps = 0.0f;
  KvLayer kv_layer;                ///< v_in_k, one KV head, values of head_size - rotary_size
  const float* q_scale = nullptr;  ///< as in RopeKvWriteArgs; it scales q's other elements too, in place
};

/// Products of single heads: out[t, h] = x[t, h] W[h]^T, where head h of a row begins at h times the row's columns / heads. Multiplies
/// the first K elements of each head of x and writes the first N of each head of out.
struct HeadLinearArgs {
  Tensor x;       ///< [tokens, heads * K or more] f32 or the activation type
  Weight weight;  ///< heads x [N, K]
  Tensor out;     ///< [tokens, heads * N or more] of the activation type
};

/// The keys that each query attends to (DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1: the lightning indexer). A query at position p sees the
/// keys at 0 to p. Their scores are
///   score[j] = scale sum over h of weights[h] max(q[h] . key[j], 0)
/// and it attends to the `most` keys with the largest scores (ties: lower position). A query that sees no more keys than these
/// attends to all, and its row of `chosen` is left as it is.
struct ChooseKeysArgs {
  Tensor q;        ///< [tokens, heads * head_size] f32 or the activation type, rotated
  Tensor weights;  ///< [tokens, heads] f32
  int32_t heads = 0;
  float scale = 0.0f;  ///< greater than 0
  KvLayer keys;        ///< one KV head, and no values
  int32_t most = 0;
  Numbers<int32_t> chosen;  ///< [tokens, most] out: positions, ascending
};

/// Causal attention over the paged cache for sequences [first_sequence, first_sequence + num_sequences) of
/// the batch: softmax(q k^T * scale) v. Query head h reads KV head h / (heads / kv_heads).
struct AttentionArgs {
  Tensor qkv;  ///< [tokens, heads * head_size] or with k and v behind q; only q is read
  int32_t heads = 0;
  float scale = 0.0f;
  KvLayer kv;
  int32_t first_sequence = 0;
  int32_t num_sequences = 0;
  Tensor out;  ///< [tokens, heads * value_size]; rows of the named sequences are written
  /// The keys that queries see. Cache blocks in which no query of a sequence sees a key are not read, nor are their block table entries.
  /// On CUDA, this and the heads of `kv` are one of StepLimits::attention_kinds.
  AttentionWindow window = {};
  float logit_cap = 0.0f;  ///< scores s become cap tanh(s / cap) (Gemma 2); 0: no cap
  Weight sinks =
      {};  ///< [1, heads] f32 or null: a score a head that joins the softmax without a value (gpt-oss)
  /// [tokens, most_chosen]: ChooseKeysArgs::chosen, for queries that see more keys than these; null: queries see all keys. Then there is one
  /// KV head, and no window, cap or sinks.
  Numbers<const int32_t> chosen = {};
  int32_t most_chosen = 0;
};

// Ops with states: gated delta nets and Mamba-2 (DeltaNetShape), short convolutions. Rows of a sequence are its next tokens.
// ForwardBatch::state_slots gives each sequence's states; afterwards they are the states behind its last token.

/// The causal convolution of each channel, followed by the functions that need q, k and v alone:
///   y[t, c] = silu(bias[c] + sum over j of weight[j, c] x[t - (conv_size - 1) + j, c])
/// and each head of q and k divided by sqrt(sum y^2 + kDeltaNormEps), q by sqrt(key_size) too.
struct DeltaConvArgs {
  Tensor x;  ///< [tokens, channels] f32
  DeltaNetShape shape;
  Weight weight;  ///< [conv_size, channels] f32
  RecurrentLayer state;
  Tensor out;               ///< [tokens, channels] f32, not x
  Weight bias = {};         ///< [1, channels] f32 or null
  bool norms_heads = true;  ///< false: y as it is (Mamba-2)
};

/// The gated delta rule, token after token. a = e^(decay softplus(alpha + dt_bias)), b = sigmoid(beta), and S is the state of a value head:
///   S = a S,  S += k (b (v - S^T k))^T,  out = S^T q
/// Where the shape decays rows, each row of S has an alpha and a dt_bias of its own, and so its own a.
struct DeltaRuleArgs {
  Tensor qkv;  ///< [tokens, channels] f32: the output of delta_conv()
  /// [tokens, 2 value_heads] f32: betas of the first gate_group() value heads, then their alphas, then the same of the next heads.
  /// Where rows decay: [tokens, value_heads], betas alone.
  Tensor gates;
  DeltaNetShape shape;
  Weight dt_bias;  ///< [1, shape.alphas()] f32
  Weight decay;    ///< [1, value_heads] f32, negative
  RecurrentLayer state;
  Tensor out;          ///< [tokens, value_columns] f32
  Tensor alphas = {};  ///< where rows decay: [tokens, shape.alphas()] f32, whose contents may change
};

/// The state-space model of Mamba-2 (Dao & Gu 2024, "Transformers are SSMs"), token after token. h [key_size, value_size] is the state of a
/// value head, x its elements, B and C those of its key head, and d = softplus(dt + dt_bias):
///   h = e^(decay d) h + B (d x)^T,  out = (h^T C + skip x) silu(gate)
struct MambaScanArgs {
  Tensor xbc;   ///< [tokens, channels] f32: x of all value heads, then B and then C of all key heads
  Tensor dt;    ///< [tokens, value_heads] f32
  Tensor gate;  ///< [tokens, value_columns] f32
  DeltaNetShape shape;
  Weight dt_bias;  ///< [1, value_heads] f32
  Weight decay;    ///< [1, value_heads] f32, negative
  Weight skip;     ///< [1, value_heads] f32
  RecurrentLayer state;
  Tensor out;  ///< [tokens, value_columns] f32
};

inline constexpr int32_t kMaxShortConvInputs = 16;

/// A gated short convolution (Liquid AI 2025, "LFM2 technical report"), causal, for each channel. Its states hold the last u.
///   u[t] = b[t] v[t],  out[t] = c[t] (bias + sum over j of weight[j] u[t - (conv_size - 1) + j])
struct ShortConvArgs {
  Tensor x;              ///< [tokens, 3 channels] f32: b, c, v
  Weight weight;         ///< [conv_size, channels] f32, 2 to kMaxShortConvInputs of them
  Weight bias = {};      ///< [1, channels] f32 or null
  RecurrentLayer state;  ///< RecurrentLayer::conv alone, of these channels
  Tensor out;            ///< [tokens, channels] f32 or the activation type
};

/// The hidden states behind each sequence's last positions, from which a model's own head makes drafts. Rows are by position: a step that
/// computes a position again, as behind a rejected draft, replaces its row.
struct HiddenRing {
  static constexpr int32_t kRows = 20;  ///< of a slot: more than a sequence has drafts in a step, and two

  float* rows =
      nullptr;  ///< [num_slots, kRows, cols] f32; position p of a sequence is row p mod kRows of its slot
  int32_t num_slots = 0;
};

/// With `out`: out[t] = the hidden state of the position in front of token t. It is row t - 1 of x if that is of the same sequence, else
/// the ring's; at position 0 it is 0, and so is an element of the ring that is not finite. Without `out`: the rows of x become the ring's,
/// of a sequence of more than kRows tokens the last kRows. A sequence without a slot (-1) is padding: its out is 0, it keeps nothing.
struct HiddenRowsArgs {
  Tensor x = {};    ///< [tokens, cols] f32; with `out` it may be null: all rows are the ring's
  Tensor out = {};  ///< [tokens, cols] f32, not x; or null
  HiddenRing ring;
};

/// out = norm(x) f(gate), head by head.
struct HeadGateArgs {
  enum class Function : uint8_t { sigmoid, silu, gelu_tanh };

  Tensor x;     ///< [tokens, heads * size] f32 or the activation type
  Tensor gate;  ///< [tokens, any] f32: size elements of head h begin at column h * gate_stride
  int32_t heads = 0;
  int64_t gate_stride = 0;
  Function function = Function::sigmoid;
  Weight norm = {};  ///< [1, size] f32: an RMS norm of each head; null: none
  float norm_eps = 0.0f;
  Tensor
      out;  ///< [tokens, heads * size] f32, the activation type, or fp8 (Target::takes_fp8()); may be x if the types agree
};

inline constexpr int32_t kMaxStreams = 4;
inline constexpr float kLeastMeanSquare = 1e-5f;

/// Mixes the residual streams s of a token, by numbers c of its own (Baykal et al. 2023, "Alternating updates for efficient
/// transformers"; Gemma 3n). c = coefs tanh(scale routed).
///   predict   s[k] += sum over j of c[k, j] s[j];  x = s[0]
///   correct   s[k] += (1 + c[k]) (x - s[0]), with s[0] from before;  x = weight s[0]
///   match     s[k] *= sqrt(mean(s[0]^2) / max(mean(s[k]^2), kLeastMeanSquare)) for k > 0;  x = mean over k of s[k]
struct MixStreamsArgs {
  enum class Kind : uint8_t { predict, correct, match };

  Kind kind = Kind::predict;
  Tensor streams;      ///< [tokens, count * cols] f32, side by side; count is 2 to kMaxStreams
  Tensor routed = {};  ///< [tokens, count] f32; not of match, as all behind it
  float scale = 1.0f;
  Weight coefs = {};   ///< [count * count, count] f32; of correct [count, count]
  Weight weight = {};  ///< [1, cols] f32; of correct alone
  Tensor x;            ///< [tokens, cols] f32

  int64_t count() const { return streams.cols / x.cols; }
};

/// The function of the logits of a token's experts.
enum class ExpertScore : uint8_t {
  softmax,  ///< over all experts; divided by the sum over the chosen ones it is the softmax of their logits alone (Mixtral, gpt-oss)
  sigmoid,  ///< each by itself: 1 / (1 + e^-l) (DeepSeek-V3)
};

inline constexpr int32_t kMaxExpertGroups = 32;

/// How experts are chosen by their scores p (DeepSeek-AI 2024, "DeepSeek-V3 technical report", 2.1.2).
struct ExpertChoice {
  ExpertScore score = ExpertScore::softmax;
  bool normalise = true;  ///< the weights of the chosen experts are p divided by their sum, else p
  float scale = 1.0f;     ///< times this
  /// Experts in groups of equal size, side by side. Only experts of the `groups_used` best groups can be chosen; a group's worth
  /// is the sum of its `group_best` (1 or 2) largest p + bias.
  int32_t groups = 1;
  int32_t groups_used = 1;
  int32_t group_best = 2;

  bool operator==(const ExpertChoice&) const = default;
};

/// The `experts_used` experts with the largest p + bias (ties: lower index), weighted without the bias.
struct MoeRouteArgs {
  Tensor logits;  ///< [tokens, experts]
  int32_t experts_used = 0;
  ExpertChoice choice = {};
  Weight bias = {};                    ///< [1, experts] f32 or null: none
  Numbers<int32_t> expert_ids = {};    ///< [tokens, experts_used] out
  Numbers<float> expert_weights = {};  ///< [tokens, experts_used] out
  Weight expert_scales = {};           ///< [1, experts] f32: multiply the weights; null: 1 (Gemma 4)
};

/// hidden[t, j] = activation(w x[t] Wg[e]^T + bg[e], w x[t] Wu[e]^T + bu[e]) with e = expert_ids[t, j] and w = input_weights[t, j].
struct MoeGateUpArgs {
  Tensor x;     ///< [tokens, K]
  Weight gate;  ///< experts x [F, K]
  Weight up;    ///< experts x [F, K]
  Numbers<const int32_t> expert_ids = {};
  int32_t experts_used = 0;
  Tensor out;  ///< [tokens * experts_used, F]
  GateActivation activation = GateActivation::silu;
  Weight gate_bias = {};                    ///< [experts, F] f32 or null
  Weight up_bias = {};                      ///< [experts, F] f32 or null
  Numbers<const float> input_weights = {};  ///< [tokens, experts_used] f32, or null: 1
};

/// out[t] += sum over j in order of weights[t, j] * (hidden[t, j] Wd[e]^T + bd[e]); or = instead of +=.
struct MoeDownArgs {
  Tensor hidden;  ///< [tokens * experts_used, F]
  Weight down;    ///< experts x [K, F]
  Numbers<const int32_t> expert_ids = {};
  Numbers<const float> expert_weights = {};
  int32_t experts_used = 0;
  Tensor out;              ///< [tokens, K] f32
  bool add_to_out = true;  ///< the residual connection
  Weight bias = {};        ///< [experts, K] f32 or null
  /// The last moe_gate_up_swiglu() had these expert_ids, with the same content, so its grouping by expert can be reused.
  bool follows_gate_up = false;
};

/// out[i] = x[rows[i]].
struct GatherRowsArgs {
  Tensor x;                       ///< [tokens, cols]
  const int32_t* rows = nullptr;  ///< one a row of out
  Tensor out;                     ///< [rows, cols]
};

/// out[t, i] = x[t, columns[i]], or -inf where columns[i] is negative: logits of some tokens as a row of the whole vocabulary.
struct SpreadColumnsArgs {
  Tensor x;        ///< [rows, any] f32
  Weight columns;  ///< [1, cols] f32: whole numbers, less than x.cols
  Tensor out;      ///< [rows, cols] f32, not x
};

/// Sets the first rank's out[:, rank * part.cols ...] = part, f32. `out` of other ranks does not change.
struct GatherColumnsArgs {
  Tensor part;
  Tensor out;
};

}  // namespace minfer
