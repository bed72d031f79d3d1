#pragma once

#include <vector>

#include "kernels/program/program.h"
#include "models/decoder/memory/kv_cache.h"
#include "models/decoder/memory/recurrent_state_pool.h"
#include "models/decoder/weights/weights.h"

namespace minfer {

/// What ops read that is neither a weight nor another op's output. Null and empty in a program that is only to tell what it needs.
struct DecoderMemory {
  const KvCache* kv = nullptr;
  const RecurrentStatePool* states = nullptr;
  /// Of ModelConfig::ropes, each [max_positions, its rotary_size / 2, 2].
  std::vector<const float*> angles = {};
  const float* q_scales = nullptr;  ///< of a model with a temperature: [max_positions]
  const float* ones = nullptr;      ///< as many as any layer needs
};

/// Writes a model's program. Blocks (the functions below) add their ops in the order in which they run; what they compute stands in the
/// arguments, so that a block reads like the formulas it is of.
class Emitter {
 public:
  /// `max_positions`: of the longest sequence.
  Emitter(const ModelConfig& config, const ModelWeights& weights, const DecoderMemory& memory,
          DType activation_dtype, int32_t max_positions);

  const ModelConfig& config;
  const ModelWeights& weights;
  const DecoderMemory& memory;
  const DType activation;  ///< the type of what products take

  const LayerWeights& layer_weights() const { return weights.layers[static_cast<size_t>(layer)]; }
  const LayerConfig& layer_config() const { return config.layer(layer); }
  /// Without a cache: what one of the type of activations would have, but for memory.
  KvLayer kv_layer() const;
  RecurrentLayer state_layer() const {
    return memory.states ? memory.states->layer(layer) : RecurrentLayer{};
  }
  const float* angles() const {
    return memory.angles.empty() ? nullptr
                                 : memory.angles[static_cast<size_t>(std::max(0, layer_config().rope))];
  }
  /// AttentionArgs::window: none where the layer's holds the longest sequence.
  AttentionWindow window() const {
    const AttentionWindow window = layer_config().window;
    return window.keys < max_positions_ ? window : AttentionWindow{};
  }
  Weight ones(int64_t cols) const {
    return {.data = memory.ones, .dtype = DType::f32, .rows = 1, .cols = cols};
  }
  /// Whether no other rank has a share of the model.
  bool is_alone() const { return config.rank.is_alone(); }

  // New values: [tokens * per_token, cols] of the type of activations or f32, or what `rows_of` says.
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

  /// Adds an op of the layer. `info` says what its arguments do not: at least its name.
  void add(OpInfo info, OpArgs args);
  void add(const char* name, OpArgs args) { add({.name = name}, std::move(args)); }
  /// Adds an op that the engine runs itself.
  OpId add_to_table(OpInfo info);

  /// norm(x) in front of a block, which an all-reduce may have made. Without a weight: x alone, in the type of activations.
  Tensor norm(const char* name, const Tensor& x, const Weight& weight, const Weight& bias);

  /// Where the last product of a block goes, and whether it is added to what is there.
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
  };
  /// x += what the block has left in `out`: summed over ranks, normed and scaled as the family has it.
  void end_block(const BlockEnd& end, const BlockOut& out, const Tensor& x);
  /// Whether the all-reduce behind a block does the norm of the next one: of several ranks, where it is an RMS norm of the sum.
  bool norms_in_all_reduce() const;
  /// x += sum over ranks of part; or x = instead of +=. Where all-reduces norm, norm(x) is what norm() then gives.
  void all_reduce(const char* name, const Tensor& part, const Tensor& x, bool add_to_x,
                  const Weight& next_norm);

  Program program;
  // Of the ops that are added:
  int32_t layer = -1;    ///< -1: none
  bool in_head = false;  ///< they are Program::head's
  bool windows = false;  ///< Op::windows

 private:
  int32_t max_positions_;
  Tensor normed_;  ///< by the all-reduce in front
};

// Blocks: what stands between `x`, the residual stream [tokens, hidden], and what they add to it. `normed`: norm(x).

/// Attention over keys and values of heads.
Tensor emit_attention(Emitter& e, const Tensor& normed);
/// Latent attention, with the products of single heads on both sides of it.
Tensor emit_latent_attention(Emitter& e, const Tensor& normed);
/// A gated short convolution.
Tensor emit_short_conv(Emitter& e, const Tensor& normed);
/// A gated delta net. These four give what the product at the block's end takes.
Tensor emit_delta_net(Emitter& e, const Tensor& normed);
/// Attention itself, of decoding sequences and of others.
void emit_attend(Emitter& e, const Tensor& q, const Tensor& attended);
/// A dense feed-forward block; gives what `down` takes.
Tensor emit_feed_forward(Emitter& e, const Tensor& normed);
/// The experts that the router chooses, and those that every token takes.
void emit_experts(Emitter& e, const Tensor& normed, const Emitter::BlockOut& out);

/// The ops of engine and sampler in a program's table.
struct FrameOps {
  OpId inputs, sample, results;
  OpId share = -1;  ///< of several ranks
};

/// All of a model, from token ids to logits. Gives the ops of its frame.
FrameOps emit_model(Emitter& e);

}  // namespace minfer
