#include "models/decoder/emit/emitter.h"

namespace minfer {

Emitter::Emitter(const ModelConfig& model, const ModelWeights& model_weights,
                 const DecoderMemory& decoder_memory, DType activation_dtype, int32_t max_positions)
    : config(model),
      weights(model_weights),
      memory(decoder_memory),
      activation(activation_dtype),
      max_positions_(max_positions) {}

Tensor Emitter::value(DType dtype, RowsOf rows_of, int64_t cols, int64_t per_row) {
  program.values.push_back({dtype, rows_of, per_row, cols});
  return {
      .dtype = dtype, .cols = cols, .stride = cols, .value = static_cast<int32_t>(program.values.size()) - 1};
}

Tensor Emitter::columns(Tensor tensor, int64_t first, int64_t count) {
  tensor.first_col += first;
  tensor.cols = count;
  return tensor;
}

Tensor Emitter::pieces(Tensor tensor, int64_t count) {
  tensor.cols /= count;
  tensor.stride = tensor.cols;
  tensor.pieces = count;
  return tensor;
}

KvLayer Emitter::kv_layer() const {
  const int32_t index = std::max(0, layer);
  if (memory.kv != nullptr) return memory.kv->layer(first_layer + index);
  const LayerHeads heads = config.heads(index);
  return {.dtype = activation,
          .kv_heads = heads.kv_heads,
          .head_size = heads.size,
          .v_head_size = config.value_size(index),
          .v_in_k = config.is_latent()};
}

KvLayer Emitter::indexer_layer() const {
  if (memory.kv != nullptr) return memory.kv->indexer_layer(layer);
  return {.dtype = activation, .kv_heads = 1, .head_size = config.indexer.key_size, .v_in_k = true};
}

OpId Emitter::add_to_table(OpInfo info) {
  const KvLayer kv = kv_layer();
  const auto activation_bytes = static_cast<int32_t>(traits(activation).block_bytes);
  info.layer = layer < 0 ? layer : first_layer + layer;
  if (in_head) info.scope = TokenScope::logits;
  info.in_element_bytes = info.kind == OpKind::sample ? int32_t{sizeof(float)} : activation_bytes;
  info.out_element_bytes = activation_bytes;
  info.kv_dtype = kv.dtype;
  info.heads = config.num_heads;
  info.kv_heads = kv.kv_heads;
  info.head_size = kv.head_size;
  info.v_head_size = kv.value_size();
  info.v_in_k = config.is_latent();
  info.ranks = config.rank.count;
  if (info.experts == 0) {
    info.experts = config.num_experts;
    info.experts_used = config.num_experts_used;
  }
  program.table.push_back(std::move(info));
  return static_cast<OpId>(program.table.size()) - 1;
}

void Emitter::add(OpInfo info, OpArgs args) {
  const OpId id = add_to_table(std::move(info));
  OpInfo& row = program.table[static_cast<size_t>(id)];
  row = describe(std::move(row), args);
  (in_head ? program.head : program.body).push_back({id, windows, std::move(args)});
}

bool Emitter::norms_in_all_reduce() const {
  return !is_alone() && config.adds_products() && !config.parallel_blocks &&
         config.architecture.norm == NormKind::rms;
}

Tensor Emitter::norm(const char* name, const Tensor& x, const Weight& weight, const Weight& bias) {
  if (norms_in_all_reduce()) return normed_;
  const Tensor out = activations(x.cols);
  add(name, NormArgs{.x = x,
                     .kind = weight ? config.architecture.norm : NormKind::none,
                     .weight = weight,
                     .bias = bias,
                     .eps = config.norm_eps,
                     .out = out});
  return out;
}

void Emitter::all_reduce(const char* name, const Tensor& part, const Tensor& x, bool add_to_x,
                         const Weight& next_norm) {
  const bool norms = norms_in_all_reduce() && next_norm;
  normed_ = norms ? activations(x.cols) : Tensor{};
  add(name, AllReduceArgs{.part = part,
                          .x = x,
                          .add_to_x = add_to_x,
                          .norm = norms ? next_norm : Weight{},
                          .norm_eps = config.norm_eps,
                          .normed = normed_});
}

Emitter::BlockOut Emitter::block_out(const Tensor& x) {
  // Products of experts are f32.
  if (!is_alone()) return {value(config.is_moe() ? DType::f32 : activation, RowsOf::token, x.cols), false};
  if (config.adds_products()) return {x, true};
  return {f32(x.cols), false};
}

void Emitter::end_block(const BlockEnd& end, const BlockOut& out, const Tensor& x) {
  const bool adds_products = config.adds_products();
  const Tensor sum = adds_products ? x : is_alone() ? out.to : f32(x.cols);
  if (!is_alone()) all_reduce(end.all_reduce, out.to, sum, adds_products, end.next_norm);
  if (!adds_products) add_normed(end.add, sum, end.post_norm, x, end.scale);
}

void Emitter::add_normed(const char* name, const Tensor& block, const Weight& weight, const Tensor& x,
                         float scale) {
  add(name, NormArgs{.x = block,
                     .kind = weight ? config.architecture.norm : NormKind::none,
                     .weight = weight,
                     .eps = config.norm_eps,
                     .scale = config.residual_scale * scale,
                     .add_to_out = true,
                     .out = x});
}

}  // namespace minfer
