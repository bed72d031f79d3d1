#pragma once

#include <vector>

#include "kernels/program/program.h"
#include "models/decoder/config/eagle_head.h"
#include "models/decoder/memory/kv_cache.h"
#include "models/decoder/memory/recurrent_state_pool.h"
#include "models/decoder/weights/weights.h"

namespace minfer {

/// The memory that ops read, other than weights and outputs of ops. Null and empty in a program that only tells what it needs.
struct DecoderMemory {
  const KvCache* kv = nullptr;
  const RecurrentStatePool* states = nullptr;
  /// The tables of ModelConfig::ropes, each [max_positions, its rotary_size / 2, 2].
  std::vector<const float*> angles = {};
  const float* q_scales = nullptr;              ///< for a model with a temperature: [max_positions]
  const float* ones = nullptr;                  ///< as many ones as any layer needs
  HiddenRing hidden = {};                       ///< for a model with a layer for drafts
  std::vector<const float*> eagle_angles = {};  ///< the tables of its EAGLE-3 head
};

/// Writes a model's program. Blocks (the functions below) add their ops in the order in which they run. The arguments hold the
/// computation, so that a block reads like its formulas.
class Emitter {
 public:
  /// `max_positions`: the length of the longest sequence.
  Emitter(const ModelConfig& config, const ModelWeights& weights, const DecoderMemory& memory,
          DType activation_dtype, int32_t max_positions);

  const ModelConfig& config;
  const ModelWeights& weights;
  const DecoderMemory& memory;
  const DType activation;  ///< the type of the inputs of products

  const LayerWeights& layer_weights() const { return weights.layers[static_cast<size_t>(layer)]; }
  const LayerConfig& layer_config() const { return config.layer(layer); }
  /// Without a cache: the fields that a cache in the type of activations would have, except for its memory.
  KvLayer kv_layer() const;
  /// The same for the keys of the layer's indexer.
  KvLayer indexer_layer() const;
  RecurrentLayer state_layer() const {
    return memory.states ? memory.states->layer(layer) : RecurrentLayer{};
  }
  const float* angles() const {
    return memory.angles.empty() ? nullptr
                                 : memory.angles[static_cast<size_t>(std::max(0, layer_config().rope))];
  }
  /// AttentionArgs::window; none if the layer's window holds the longest sequence.
  AttentionWindow window() const {
    const AttentionWindow window = layer_config().window;
    return window.keys < max_positions_ ? window : AttentionWindow{};
  }
  /// True if the longest sequence has more keys than the indexer chooses. Else all queries see all keys.
  bool chooses_keys() const {
    return config.indexer.most_chosen > 0 && config.indexer.most_chosen < max_positions_;
  }
  Weight ones(int64_t cols) const {
    return {.data = memory.ones, .dtype = DType::f32, .rows = 1, .cols = cols};
  }
  /// True if no other rank has a share of the model.
  bool is_alone() const { return config.rank.is_alone(); }

  // New values: [tokens * per_token, cols] in the type of activations or in f32; `rows_of` may set other rows.
  Tensor activations(int64_t cols, int64_t per_token = 1) {
    return value(activation, RowsOf::token, cols, per_token);
  }
  Tensor f32(int64_t cols) { return value(DType::f32, RowsOf::token, cols); }
  Tensor value(DType dtype, RowsOf rows_of, int64_t cols, int64_t per_row = 1);
  /// [tokens, per_token] of four bytes each.
  template <class T>
  Numbers<T> numbers(int64_t per_token) {
    static_assert(sizeof(T) == sizeof(float));
    Numbers<T> numbers;
    numbers.value = f32(per_token).value;
    return numbers;
  }
  /// Columns [first, first + count) of a tensor.
  static Tensor columns(Tensor tensor, int64_t first, int64_t count);
  /// Each row as `count` rows of equal parts.
  static Tensor pieces(Tensor tensor, int64_t count);

  /// Adds an op of the layer. `info` has the facts that its arguments lack: at least its name.
  void add(OpInfo info, OpArgs args);
  void add(const char* name, OpArgs args) { add({.name = name}, std::move(args)); }
  /// Adds an op that the engine runs itself.
  OpId add_to_table(OpInfo info);

  /// norm(x) in front of a block; an all-reduce may have computed it. Without a weight: x itself, in the type of activations.
  Tensor norm(const char* name, const Tensor& x, const Weight& weight, const Weight& bias);

  /// The output of the last product of a block. `add`: the product adds to the contents of `to`.
  struct BlockOut {
    Tensor to;
    bool add;
  };
  BlockOut block_out(const Tensor& x);
  struct BlockEnd {
    const char* all_reduce;  ///< name of the op that sums over ranks
    const char* add;         ///< name of the op that norms and scales
    Weight post_norm;        ///< null: none
    Weight next_norm;        ///< the norm in front of the block behind
    float scale = 1.0f;      ///< beside the family's
  };
  /// x += the block's result in `out`: summed over ranks, normed and scaled as the family requires.
  void end_block(const BlockEnd& end, const BlockOut& out, const Tensor& x);
  /// x += scale norm(block), scaled as the family requires too. Without a weight: += block.
  void add_normed(const char* name, const Tensor& block, const Weight& weight, const Tensor& x,
                  float scale = 1.0f);
  /// True if the all-reduce behind a block computes the norm of the next block: with several ranks, if it is an RMS norm of the sum.
  bool norms_in_all_reduce() const;
  /// x += sum over ranks of part, or x = the sum. If all-reduces norm, norm() then returns their norm(x).
  void all_reduce(const char* name, const Tensor& part, const Tensor& x, bool add_to_x,
                  const Weight& next_norm);

  Program program;
  // Properties of the ops that add() adds:
  int32_t layer = -1;  ///< -1: none
  /// The number of layer 0 in the cache and in the op table. A head's layer stands behind the target's.
  int32_t first_layer = 0;
  bool in_head = false;    ///< they belong to Program::head
  bool windows = false;    ///< Op::windows
  bool only_keys = false;  ///< attention makes no queries, and ends behind the write of keys and values
  Numbers<const int32_t> chosen = {};  ///< AttentionArgs::chosen, by the last layer with an indexer
  Tensor features = {};                ///< inputs of an EAGLE-3 head side by side, [tokens, 3 hidden]

  /// Calls emit(Emitter&) with an emitter of the model's EAGLE-3 head, in the head's layer, that adds to this program.
  template <class Emit>
  void with_eagle(const Emit& emit) {
    DecoderMemory of_head = memory;
    of_head.angles = memory.eagle_angles;
    Emitter head(config.eagle->config, weights.eagle->model, of_head, activation, max_positions_);
    head.layer = 0;
    head.first_layer = config.num_layers;
    head.program = std::move(program);
    emit(head);
    program = std::move(head.program);
  }

 private:
  int32_t max_positions_;
  Tensor normed_;  ///< by the all-reduce in front
};

/// x += output(attended), where attended is of norm(x). Gives norm(x).
Tensor emit_attention_block(Emitter& e, const Tensor& x);
/// The same with another input of attention.
void emit_attention_block(Emitter& e, const Tensor& x, const Tensor& normed);
/// x += down(hidden), or the weighted sum of experts. `normed`: of the block in front, which a parallel one takes too.
void emit_feed_forward_block(Emitter& e, const Tensor& x, Tensor normed);
/// Keeps the hidden states of a layer for drafts for the passes and steps behind.
void emit_draft_state(Emitter& e, const Tensor& hidden);
/// The part of the layer for drafts that runs in each step of the model: its keys and values of the step's tokens.
void emit_draft_keys(Emitter& e, const Tensor& x);
/// The same of an EAGLE-3 head, also for emit_draft(). emit_eagle_feature() keeps x in front of layer e.layer, if the head takes it.
void emit_eagle_keys(Emitter& e, const Tensor& x);
void emit_eagle_draft(Emitter& e);
void emit_eagle_feature(Emitter& e, const Tensor& x);

// Blocks: they compute additions to `x`, the residual stream [tokens, hidden]. `normed`: norm(x).

/// Attention over keys and values of heads.
Tensor emit_attention(Emitter& e, const Tensor& normed);
/// Latent attention, with the products of single heads on both sides of it.
Tensor emit_latent_attention(Emitter& e, const Tensor& normed);
/// The keys of latent attention's indexer, and Emitter::chosen. `q_rank`: the vector that queries are products of.
void emit_indexer(Emitter& e, const Tensor& normed, const Tensor& q_rank);
/// A gated short convolution.
Tensor emit_short_conv(Emitter& e, const Tensor& normed);
/// Mamba-2.
Tensor emit_mamba(Emitter& e, const Tensor& normed);
/// Kimi delta attention.
Tensor emit_kimi_delta(Emitter& e, const Tensor& normed);
/// A gated delta net. These six functions return the input of the product at the block's end.
Tensor emit_delta_net(Emitter& e, const Tensor& normed);
/// Attention itself, for decoding sequences and others.
void emit_attend(Emitter& e, const Tensor& q, const Tensor& attended);
/// A dense feed-forward block; returns the input of `down`.
Tensor emit_feed_forward(Emitter& e, const Tensor& normed);
/// The experts that the router chooses by its own input, and the shared experts.
void emit_experts(Emitter& e, const Tensor& routed, const Tensor& normed, const Emitter::BlockOut& out);
/// Experts beside a dense block, each with norms of their own; gives the sum.
Tensor emit_experts_beside_dense(Emitter& e, const Tensor& x);
/// The inputs of all layers by their tokens, and what a layer adds to `x` from its input, or to all of `streams` but the first.
Tensor emit_layer_inputs(Emitter& e, const Tensor& x);
void emit_layer_input(Emitter& e, const Tensor& x, const Tensor& inputs, const Tensor& streams);

// Several residual streams: `streams` [tokens, num_streams * hidden] f32, side by side. Without cols the model has one.

/// The streams, made of the embedding x.
Tensor emit_streams(Emitter& e, const Tensor& x);
/// Predicts the streams behind a layer; x becomes the first one, which the layer's blocks add to.
void emit_predict(Emitter& e, const Tensor& streams, const Tensor& x);
/// LAuReL, beside attention: x = (x + normed + its product) / sqrt(2).
void emit_laurel(Emitter& e, const Tensor& x, const Tensor& normed);
/// Corrects the streams by the layer's x, which becomes the first one, scaled.
void emit_correct(Emitter& e, const Tensor& streams, const Tensor& x);
/// x = the mean of the streams.
void emit_merge(Emitter& e, const Tensor& streams, const Tensor& x);

/// The ops of engine and sampler in a program's table.
struct FrameOps {
  OpId inputs, sample, results;
  OpId share = -1;  ///< with several ranks
};

/// A whole model, from token ids to logits. Returns the ops of its frame.
FrameOps emit_model(Emitter& e);
/// Logits of a slice of rows of x: [rows, vocab].
void emit_head(Emitter& e, const Tensor& x, const Weight& norm, const Weight& output);
/// The layer for drafts, from a token of each sequence to the logits of the next.
void emit_draft(Emitter& e);

}  // namespace minfer
