#include "models/decoder/decoder.h"

#include <algorithm>

namespace minfer {

DecoderPrograms::DecoderPrograms(const ModelConfig& config, const ModelWeights& weights,
                                 const DecoderMemory& memory, const Target& target,
                                 const DecoderLimits& limits) {
  Emitter emitter(config, weights, memory, target.info().activation_dtype, limits.max_positions);
  frame = emit_model(emitter);
  // With several ranks, all-reduces write norms, and only in the type of activations.
  const auto variant = [&](int64_t tokens) {
    return config.rank.is_alone() ? fuse(emitter.program, target, tokens) : emitter.program;
  };
  variants = {variant(1), variant(std::max(2, limits.max_tokens))};
  for (const Op& op : variants[1].body) {
    OpInfo& row = variants[1].table[static_cast<size_t>(op.id)];
    row = describe(std::move(row), op.args);
  }
  arena = lay_out(variants, {limits.max_tokens, limits.logit_slice});
}

size_t DecoderPrograms::max_op_runs(const DecoderLimits& limits) const {
  const size_t of_a_slice = variants[1].head.size() + 1;  // with the sampler
  return table().size() +
         of_a_slice * static_cast<size_t>(std::max(limits.max_tokens - 1, 0) / limits.logit_slice);
}

StepLimits step_limits(const ModelConfig& config, const DecoderPrograms& programs,
                       const DecoderLimits& limits, int32_t max_sequences, int32_t max_blocks) {
  return {.max_tokens = limits.max_tokens,
          .max_sequences = max_sequences,
          .max_logit_rows = limits.max_tokens,
          .logit_slice = limits.logit_slice,
          .max_blocks = max_blocks,
          .max_stamps = static_cast<int32_t>(programs.max_op_runs(limits)),
          .vocab_size = config.whole_vocab_size(),
          .hidden_size = std::max(config.hidden_size, config.latent.q_rank),
          .ffn_size = config.max_ffn_size(),
          .qkv_size = config.qkv_size(),
          .heads = config.num_heads,
          .head_size = (config.output_size() + config.num_heads - 1) / config.num_heads,
          .latent_row = config.is_latent() ? config.head_size : 0,
          .experts = config.num_experts,
          .experts_used = config.num_experts_used,
          .routed_layers = config.num_expert_layers(),
          .attention_kinds = attention_kinds_of(config, limits.max_positions),
          .is_recurrent = config.is_recurrent()};
}

Decoder::Decoder(const ModelConfig& config, ModelWeights weights, Backend& backend, const KvCache& kv,
                 const RecurrentStatePool& states, const DecoderLimits& limits)
    : config_(config),
      weights_(std::move(weights)),
      backend_(backend),
      limits_(limits),
      programs_(config_, weights_, make_constants(kv, states), backend_, limits_),
      values_(backend_.allocate(programs_.arena.bytes, "activations")) {
  for (Program& program : programs_.variants)
    place_values(program, programs_.arena, static_cast<std::byte*>(values_.data()));
}

Tensor Decoder::forward(const ForwardBatch& batch) {
  if (batch.num_tokens > limits_.max_tokens) {
    fail("a step of {} tokens exceeds the workspace of {}", batch.num_tokens, limits_.max_tokens);
  }
  Program& program = program_of(batch);
  run(program, program.body, backend_, batch, {});
  return logits(batch, 0);
}

Tensor Decoder::logits(const ForwardBatch& batch, int32_t first_row) {
  const RowSlice slice{first_row, std::min(batch.num_logit_rows - first_row, limits_.logit_slice)};
  Program& program = program_of(batch);
  if (slice.count > 0) run(program, program.head, backend_, batch, slice);
  Tensor logits = program.logits;
  logits.rows = slice.count;
  return logits;
}

}  // namespace minfer
