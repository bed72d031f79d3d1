#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/bench/kernel_operands.h"

// How the operands are used: the batch of a step, a run of the op, and the products to compare it with.
namespace minfer {

ForwardBatch KernelOperands::host_batch(const KernelCase& c) {
  const int32_t blocks = sequence_blocks(c);
  block_table_.resize(static_cast<size_t>(c.sequences * blocks));
  std::iota(block_table_.begin(), block_table_.end(), 0);
  std::ranges::shuffle(block_table_, random_);
  const int32_t new_tokens = c.tokens / c.sequences;
  query_start_ = {0};
  context_len_.assign(static_cast<size_t>(c.sequences), c.context);
  positions_.clear(), slots_.clear(), changes_.clear();
  for (int32_t sequence = 0; sequence < c.sequences; ++sequence) {
    for (int32_t position = c.context - new_tokens; position < c.context; ++position) {
      const int32_t block = block_table_[static_cast<size_t>(sequence * blocks + position / block_size_)];
      positions_.push_back(position);
      slots_.push_back(block * block_size_ + position % block_size_);
    }
    query_start_.push_back(static_cast<int32_t>(positions_.size()));
    changes_.push_back({sequence, 0, blocks});
  }
  token_ids_.assign(static_cast<size_t>(c.tokens), 0);
  logit_rows_.resize(c.info.scope == TokenScope::logits ? static_cast<size_t>(c.tokens) : 0);
  std::iota(logit_rows_.begin(), logit_rows_.end(), 0);
  return {.num_tokens = c.tokens,
          .num_sequences = c.sequences,
          .num_decode_sequences = c.is_decode() ? c.sequences : 0,
          .num_decode_tokens = c.is_decode() ? c.tokens : 0,
          .num_logit_rows = static_cast<int32_t>(logit_rows_.size()),
          .max_blocks = blocks,
          .token_ids = token_ids_.data(),
          .positions = positions_.data(),
          .slots = slots_.data(),
          .query_start = query_start_.data(),
          .context_len = context_len_.data(),
          .block_table = block_table_.data(),
          .changes = changes_,
          .logit_rows = logit_rows_.data()};
}

std::span<const SamplingRow> KernelOperands::sampling_rows(const KernelCase& c) {
  rows_.clear();
  if (c.info.kind != OpKind::sample) return rows_;
  for (int32_t i = 0; i < c.tokens; ++i) {
    SamplingRow row;
    row.temperature = c.sampling == SampleKind::greedy ? 0.0f : 0.8f;
    if (c.sampling == SampleKind::top_k_50) row.top_k = 50;
    if (c.sampling == SampleKind::top_p_90) row.top_p = 0.9f;
    row.seed = random_();
    row.position = i;
    rows_.push_back(row);
  }
  return rows_;
}

void KernelOperands::run_norm(OpId op) {
  const auto cols = static_cast<int64_t>(norm_row_.bytes() / sizeof(float));
  const Tensor row{.data = norm_row_.data(), .dtype = DType::f32, .rows = 1, .cols = cols, .stride = cols};
  backend_->norm(op,
                 {.x = row, .weight = {norm_row_.data(), DType::f32, 1, 1, cols}, .eps = 1e-5f, .out = row});
}

void KernelOperands::flush_cache(OpId op) {
  backend_->linear(op, {.x = filler_x_, .weights = {&filler_, 1}, .out = filler_out_});
}

Tensor KernelOperands::run(const KernelCase& c, const ForwardBatch& batch, OpId op) {
  const int64_t copy = next_copy_++ % copies(c);
  const Tensor in = input(c, copy);
  const Tensor out = output(c, copy);
  const std::vector<Weight> none;
  const std::vector<Weight>& w =
      weights_.empty() ? none : weights_[static_cast<size_t>(copy) % weights_.size()];
  int32_t* ids = ids_of(c, copy);
  float* expert_weights = expert_weights_of(c, copy);
  const int32_t used = c.info.experts_used;
  switch (c.info.kind) {
    case OpKind::embed:
      backend_->embed(
          op, {.token_ids = ids, .table = w[0], .vocab_size = static_cast<int32_t>(w[0].rows), .out = out});
      break;
    case OpKind::rms_norm:
      backend_->norm(op, {.x = in, .weight = w[0], .eps = c.norm_eps, .out = out});
      break;
    case OpKind::linear:
      backend_->linear(op, {.x = in, .weights = w, .out = out, .add_to_out = c.info.add_to_out});
      break;
    case OpKind::gate_up_swiglu:
      backend_->gate_up_swiglu(op, {.x = in, .gate = w[0], .up = w[1], .out = out});
      break;
    case OpKind::rope_kv_write:
      backend_->rope_kv_write(op, batch,
                              {.qkv = in,
                               .q_out = out.dtype == DType::f32 ? Tensor{} : out,
                               .heads = c.info.heads,
                               .rotary_size = c.rotary_size,
                               .pairing = c.pairing,
                               .cos_sin = static_cast<const float*>(rope_table_.data()),
                               .q_norm = w.empty() ? Weight{} : w[0],
                               .k_norm = w.empty() ? Weight{} : w[1],
                               .layer_norms = !w.empty() && w[0].rows > 1,
                               .norm_eps = c.norm_eps,
                               .kv = kv_layer(c, copy)});
      break;
    case OpKind::latent_kv_write: {
      Tensor q = in, kv = in;
      q.cols = int64_t{c.info.heads} * c.rotary_size;
      kv.cols = c.info.head_size;
      kv.data = in.f32() + q.cols;
      backend_->latent_kv_write(op, batch,
                                {.q = q,
                                 .kv = kv,
                                 .q_out = out,
                                 .heads = c.info.heads,
                                 .rotary_size = c.rotary_size,
                                 .pairing = c.pairing,
                                 .cos_sin = static_cast<const float*>(rope_table_.data()),
                                 .kv_norm = w[0],
                                 .norm_eps = c.norm_eps,
                                 .kv_layer = kv_layer(c, copy)});
      break;
    }
    case OpKind::head_linear:
      backend_->head_linear(op, {.x = in, .weight = w[0], .out = out});
      break;
    case OpKind::attention:
      backend_->attention(op, batch,
                          {.qkv = in,
                           .heads = c.info.heads,
                           .scale = 1.0f / std::sqrt(static_cast<float>(c.info.head_size)),
                           .kv = kv_layer(c, copy),
                           .num_sequences = c.sequences,
                           .out = out,
                           .window = c.info.window,
                           .logit_cap = c.logit_cap});
      break;
    case OpKind::moe_route:
      backend_->moe_route(
          op, {.logits = in, .experts_used = used, .expert_ids = ids, .expert_weights = expert_weights});
      break;
    case OpKind::moe_gate_up_swiglu:
      backend_->moe_gate_up_swiglu(
          op, {.x = in, .gate = w[0], .up = w[1], .expert_ids = ids, .experts_used = used, .out = out});
      break;
    case OpKind::moe_down:
      backend_->moe_down(op, {.hidden = in,
                              .down = w[0],
                              .expert_ids = ids,
                              .expert_weights = expert_weights,
                              .experts_used = used,
                              .out = out});
      break;
    case OpKind::gather:
      backend_->gather_rows(op, in, batch.logit_rows, out);
      break;
    default:  // sample, which a step does itself; there are no cases of the others
      break;
  }
  return in;
}

std::vector<cuda::Product> KernelOperands::products(const KernelCase& c) const {
  std::vector<cuda::Product> products;
  const bool is_product = c.info.kind == OpKind::linear || c.info.kind == OpKind::gate_up_swiglu;
  if (!is_product || backend_->info().activation_dtype != DType::bf16) return products;
  for (int64_t copy = 0; copy < copies(c); ++copy) {
    const std::vector<Weight>& matrices = weights_[static_cast<size_t>(copy) % weights_.size()];
    Weight all = matrices.front();
    all.rows = 0;
    for (const Weight& matrix : matrices) {  // they are one matrix if they are contiguous
      const bool follows = static_cast<const std::byte*>(all.data) + all.matrix_bytes() == matrix.data;
      if (matrix.dtype != DType::bf16 || !follows) return {};
      all.rows += matrix.rows;
    }
    Tensor out = output(c, copy);
    out.cols = out.stride = all.rows;
    products.push_back({.weight = all, .x = input(c, copy), .out = out, .add_to_out = c.info.add_to_out});
  }
  return products;
}

}  // namespace minfer
