#pragma once

#include <array>
#include <initializer_list>
#include <vector>

#include "models/decoder/kv_cache.h"
#include "models/decoder/state_pool.h"
#include "models/decoder/weights/weights.h"

namespace minfer {

/// The largest step a decoder must be able to run; its workspace is sized by them once.
struct DecoderLimits {
  int32_t max_tokens = 0;     ///< tokens of a step; any number of them may want logits
  int32_t logit_slice = 0;    ///< rows of logits that are computed at a time
  int32_t max_positions = 0;  ///< longest sequence
};

/// An op of the decoder's table, which not every layer has. Throws Error where one is run that the table does not have.
class TableOp {
 public:
  TableOp() = default;
  TableOp(OpId op) : op_(op) {}
  operator OpId() const {
    if (op_ < 0) fail("an op is run that was never added to the decoder's table of ops");
    return op_;
  }

 private:
  OpId op_ = -1;
};

/// A decoder-only transformer written once against Backend: layers of grouped-query attention with rotary positions, and feed-forward
/// (dense, or the top-k of several experts), norms before or behind each. Families differ by ModelConfig alone. Owned by the engine, called from its thread. Holds references: backend, KV cache
/// and states outlive it.
class Decoder {
 public:
  Decoder(const ModelConfig& config, ModelWeights weights, Backend& backend, const KvCache& kv,
          const StatePool& states, const DecoderLimits& limits);

  /// What a backend's prepare() is told for such a decoder.
  static StepLimits step_limits(const ModelConfig& config, const DecoderLimits& limits, int32_t max_sequences,
                                int32_t max_blocks);
  /// Bytes of backend memory that a decoder allocates.
  static int64_t workspace_bytes(const ModelConfig& config, DType activation_dtype,
                                 const DecoderLimits& limits);

  /// Every op of a step in order, the sampler's included; an OpId is an index into it.
  const std::vector<OpInfo>& ops() const { return ops_; }
  /// Runs of ops in a step at the most: those of the head and the sampler come once a slice of logits.
  size_t max_op_runs() const;
  OpId inputs_op() const { return inputs_op_; }
  OpId sample_op() const { return sample_op_; }
  OpId results_op() const { return results_op_; }
  OpId share_op() const { return share_op_; }  ///< -1: a rank alone

  /// Runs the batch through all layers, writing K and V of its tokens. Returns logits(batch, 0). Asynchronous where the backend is.
  Tensor forward(const ForwardBatch& batch);
  /// Logits of rows [first_row, first_row + n) of the batch that forward() was last called with: [n,
  /// vocab_size] f32, where n is what is left of its rows, logit_slice at the most. Valid until the next call.
  Tensor logits(const ForwardBatch& batch, int32_t first_row);

 private:
  struct LayerOps {
    TableOp attn_norm, qkv, q_norm, k_norm, rope_kv_write, attention_decode, attention_prefill, attn_output;
    TableOp q_a_norm, q_b, k_b, v_b;  ///< of latent attention; its latent_kv_write is rope_kv_write
    TableOp delta_conv, delta_rule;   ///< of delta nets; their first product is qkv
    TableOp head_gate;                ///< of delta nets, and of attention whose heads have gates
    TableOp ffn_norm, gate_up, activate, down, router, route;
    TableOp shared_gate_up, shared_down;      ///< of the experts that every token takes
    TableOp shared_router, shared_route;      ///< of those with a weight
    TableOp scale;                            ///< of the residual stream behind the layer
    TableOp attn_add, ffn_add;                ///< a block's norm and scale, on its way to the residual stream
    TableOp attn_all_reduce, ffn_all_reduce;  ///< of several ranks, with the norms that follow
  };
  /// Types of x of a layer's products with so many tokens; down's is that of gate and up.
  struct InputTypes {
    DType qkv, attn_output, ffn;
  };

  void make_rope_tables();
  /// RopeKvWriteArgs::q_scale of the layers that have a temperature, and what stands for weights of 1.
  void make_constants();
  /// Of `ones_`, how many any layer needs; 0: no layer.
  static int64_t num_ones(const ModelConfig& config, int64_t max_tokens);
  /// What ends a block: how its last product gets to the residual stream.
  struct BlockEnd {
    TableOp all_reduce, add;  ///< the op that sums over ranks; the one that norms and scales
    Weight post_norm;         ///< null: none
    Weight next_norm;         ///< the norm of the block behind, which an all-reduce does
  };
  /// A norm in front of a block.
  struct Norm {
    TableOp op;
    Weight weight, bias;  ///< null: none
  };
  /// What a block's first products take.
  struct BlockIn {
    Tensor x;
    FrontNorm norm;  ///< in front of x; null: x is normalised
  };
  /// Where a block's last product goes, and whether it is added to what is there.
  struct BlockOut {
    Tensor to;
    bool add;
  };

  // Op table: what each op is and what it moves at the least (decoder_ops.cpp). Types are those of what the op reads and writes.
  void build_op_table();
  LayerOps add_layer_ops(int32_t layer);
  void add_attention_ops(int32_t layer, const InputTypes& types, LayerOps& ops);
  /// `product`: the name of the one that ends the block.
  void add_attention_end_ops(int32_t layer, const InputTypes& types, const char* product, LayerOps& ops);
  void add_qkv_ops(int32_t layer, const InputTypes& types, LayerOps& ops);
  void add_latent_ops(int32_t layer, const InputTypes& types, LayerOps& ops);
  void add_delta_ops(int32_t layer, const InputTypes& types, LayerOps& ops);
  OpId add_head_gate_op(const char* name, int32_t layer, const Weight& norm, DType in, DType out);
  OpId add_head_product(const char* name, int32_t layer, int64_t in, int64_t out, const Weight& weight);
  void add_ffn_ops(int32_t layer, const InputTypes& types, LayerOps& ops);
  void add_expert_ops(int32_t layer, LayerOps& ops);
  void add_shared_expert_ops(int32_t layer, LayerOps& ops);
  void add_ffn_norm_op(int32_t layer, DType out, LayerOps& ops);
  void add_ffn_end_ops(int32_t layer, LayerOps& ops);
  BlockEnd add_end_ops(const char* all_reduce, const char* add, int32_t layer, const Weight& post_norm,
                       const Weight& next_norm);
  OpId add_norm_op(const char* name, int32_t layer, int64_t size, std::initializer_list<Weight> weights,
                   DType out);
  OpId add_product_op(OpInfo info, std::initializer_list<Weight> weights, DType in, DType out);
  /// The product that ends a block.
  OpId add_block_product(const char* name, int32_t layer, int64_t in, std::initializer_list<Weight> weights,
                         DType in_type);
  OpId add_op(OpInfo info, std::initializer_list<Weight> weights = {});
  /// `part`: the type of the addends.
  OpId add_all_reduce(const char* name, int32_t layer, const Weight& norm, DType part);

  void attention_block(const ForwardBatch& batch, int32_t layer, const Tensor& x);
  /// q and k in place, each over all its heads.
  void norm_rows_of_qk(int32_t layer, const Tensor& qkv);
  void attend_heads(const ForwardBatch& batch, int32_t layer, const BlockIn& in, const Tensor& attended);
  /// Latent attention, with the products of single heads on both sides of it.
  void attend_latent(const ForwardBatch& batch, int32_t layer, const BlockIn& in, const Tensor& values);
  /// A gated delta net, in front of the product that ends it.
  void run_delta_net(const ForwardBatch& batch, int32_t layer, const BlockIn& in, const Tensor& out);
  /// What attention has given, times the sigmoid of the gates behind the heads of q.
  void gate_heads(int32_t layer, const Tensor& qkv, const Tensor& attended);
  /// Of a token.
  static int64_t delta_bytes(const ModelConfig& config);
  /// q of latent attention, [tokens, heads * key_size] f32, from qkv's first columns.
  Tensor latent_queries(int32_t layer, const Tensor& qkv);
  /// Attention itself, of decoding sequences and of others.
  void attend(const ForwardBatch& batch, int32_t layer, const Tensor& q, const Tensor& attended);
  /// out = norm(x) before a block, unless an all-reduce has done it. A family without such norms has x alone, in the type of activations.
  void norm_before(const Norm& norm, const Tensor& x, const Tensor& out);
  /// x of the block's `products`: normalised into `normed`, or as it is where they take the norm with it (Backend::takes_norm()).
  BlockIn block_in(const Norm& norm, const Tensor& x, std::initializer_list<Weight> products,
                   const Tensor& normed);
  BlockOut block_out(const Tensor& x) const;
  /// x += what the block has left in block_out(x): summed over ranks, normed and scaled as the family has it.
  void end_block(const BlockEnd& end, const Tensor& x);
  BlockEnd attention_end(int32_t layer) const;
  BlockEnd ffn_end(int32_t layer) const;
  /// Whether the all-reduce behind a block does the norm of the next one: of several ranks, where it is an RMS norm of the sum.
  bool norms_in_all_reduce() const;
  void ffn_block(int32_t layer, const Tensor& x);
  /// down's x: [tokens, ffn] from the normalised hidden states.
  void ffn_hidden(int32_t layer, const BlockIn& in, const Tensor& hidden);
  void moe_block(int32_t layer, const Tensor& x);
  /// The experts that the router chooses: out.to (+)= their weighted sum.
  void choose_experts(int32_t layer, const Tensor& normed, const BlockOut& out);
  /// Those that every token takes: out += their sum, weighted by a product of the token's where the family has it.
  void add_shared_experts(int32_t layer, const Tensor& normed, const Tensor& out);
  /// Of what ranks add to the residual stream: products of experts are f32.
  static DType part_dtype(const ModelConfig& config, DType activation_dtype);
  /// The type of x of products with `weights`: that of activations, or fp8 (Backend::takes_fp8()).
  DType input_dtype(std::initializer_list<Weight> weights, int64_t tokens, int32_t head_size = 0) const;
  /// Of x of the product behind attention, or behind a delta net.
  DType attended_dtype(int32_t layer, int64_t tokens) const;
  /// Elements of `ffn_` that a token needs.
  static int64_t ffn_elements(const ModelConfig& config);
  InputTypes input_types(int32_t layer, int64_t tokens) const;
  /// AttentionArgs::window: none where the layer's holds the longest sequence.
  AttentionWindow window_of(int32_t layer) const;
  /// Norm of the heads of values, without weights; null: none.
  Weight value_norm(int32_t layer) const;
  /// Behind a layer, where it has a scale.
  void scale_layer(int32_t layer, const Tensor& x);
  /// Norms of the heads of q and k of a layer, which go with their rotation; null: none.
  std::array<Weight, 2> head_norms(int32_t layer) const;
  /// Of a single weight: none where it is null.
  static std::span<const Weight> bias_of(const Weight& bias);
  Tensor workspace(const Buffer& buffer, int64_t rows, int64_t cols) const;
  Tensor workspace(const Buffer& buffer, int64_t rows, int64_t cols, DType dtype) const;
  Tensor f32_workspace(const Buffer& buffer, int64_t rows, int64_t cols) const;
  /// Of f32 rows: columns [first, first + count).
  static Tensor f32_columns(Tensor tensor, int64_t first, int64_t count) {
    tensor.data = tensor.f32() + first;
    tensor.cols = count;
    return tensor;
  }

  ModelConfig config_;
  ModelWeights weights_;
  Backend& backend_;
  const KvCache& kv_;
  const StatePool& states_;
  DecoderLimits limits_;
  DType activation_dtype_;

  std::vector<OpInfo> ops_;
  std::vector<LayerOps> layer_ops_;
  TableOp embed_all_reduce_op_, gather_logits_op_;  ///< of several ranks
  OpId share_op_ = -1;                              ///< likewise
  TableOp inputs_op_, embed_op_, gather_op_, output_norm_op_, lm_head_op_, sample_op_, results_op_,
      logit_cap_op_;

  std::vector<Buffer>
      rope_tables_;  ///< of ModelConfig::ropes, each [max_positions, its rotary_size / 2, 2] f32
  Buffer q_scales_;  ///< of a model with a temperature: [max_positions] f32
  Buffer ones_;      ///< [num_ones] f32
  Buffer hidden_;    ///< [max_tokens, hidden] f32: the residual stream
  Buffer normed_;    ///< [max_tokens, hidden]
  // Sizes of attention are those of the largest layer; others use the first bytes.
  Buffer qkv_;  ///< [max_tokens, qkv_size] f32
  Buffer
      q_;  ///< [max_tokens, q_size]: rotated queries, unless qkv_ has them in place, as it does not with gates; latent: those that attend
  Buffer delta_qkv_;     ///< of delta nets: [max_tokens, channels] f32
  Buffer delta_values_;  ///< [max_tokens, value_columns] f32
  Buffer attention_;     ///< [max_tokens, attended_size]
  Buffer latent_q_;      ///< latent, of queries with a rank: [max_tokens, heads * key_size] f32
  Buffer latent_q_in_;   ///< of the same: [max_tokens, q_rank]
  Buffer values_;        ///< latent: [max_tokens, output_size]
  Buffer ffn_;           ///< of the largest feed-forward block: [max_tokens (* experts_used), ffn]
  Buffer
      block_out_;  ///< [max_tokens, hidden] f32: what a norm or a scale stands behind, on its way to the residual stream
  Buffer part_;            ///< of several ranks: [max_tokens, hidden], a rank's addend to the residual stream
  Buffer logits_part_;     ///< of several ranks: [logit_slice, vocab / ranks] f32
  Buffer router_logits_;   ///< [max_tokens, experts] f32
  Buffer expert_ids_;      ///< [max_tokens, experts_used] int32
  Buffer expert_weights_;  ///< [max_tokens, experts_used] f32
  Buffer last_hidden_;     ///< [logit_slice, hidden] f32
  Buffer last_normed_;     ///< [logit_slice, hidden]
  Buffer logits_;          ///< [logit_slice, vocab] f32
};

}  // namespace minfer
