#include "models/decoder/decoder.h"

#include <algorithm>
#include <cmath>

namespace minfer {
namespace {

/// Elements of HiddenRing::rows; 0: the model has no layer for drafts.
int64_t hidden_elements(const ModelConfig& config, const DecoderLimits& limits) {
  const int64_t rows = int64_t{limits.max_sequences} * HiddenRing::kRows;
  if (config.eagle) return rows * config.eagle->config.hidden_size;
  return config.has_draft_layer ? rows * config.hidden_size : 0;
}

/// The columns of the widest input of a product, beside those of the hidden size and of feed-forward blocks.
int64_t widest_input(const ModelConfig& config) {
  if (!config.eagle) return config.output_size();
  const EagleHead& head = *config.eagle;
  return std::max<int64_t>({config.output_size(), head.config.output_size(), 2 * head.config.hidden_size,
                            3 * head.target_hidden_size});
}

/// Rotary elements of a position in all tables.
int64_t rotary_elements(const ModelConfig& config) {
  int64_t count = 0;
  for (const RopeConfig& rope : config.ropes)
    count += config.rotary_size_of(rope);
  return count;
}

/// 0: no layer needs any.
int64_t num_ones(const ModelConfig& config, int64_t max_tokens) {
  int64_t count = 0;
  for (int32_t layer = 0; layer < config.num_all_layers(); ++layer) {
    if (config.architecture.qk_norm == QkNorm::rotated_head || config.architecture.norms_values)
      count = std::max<int64_t>(count, config.heads(layer).size);
  }
  if (config.architecture.expert_weights_input) count = std::max(count, max_tokens * config.num_experts_used);
  return count;
}

}  // namespace

DecoderPrograms::DecoderPrograms(const ModelConfig& config, const ModelWeights& weights,
                                 const DecoderMemory& memory, const Target& target,
                                 const DecoderLimits& limits) {
  const auto make = [&](Emitter& emitter, int32_t max_tokens) {
    // With several ranks, all-reduces write norms, and only in the type of activations.
    const auto variant = [&](int64_t tokens) {
      return config.rank.is_alone() ? fuse(emitter.program, target, tokens) : emitter.program;
    };
    StepPrograms made{.variants = {variant(1), variant(std::max(2, max_tokens))}, .arena = {}};
    for (const Op& op : made.variants[1].body) {
      OpInfo& row = made.variants[1].table[static_cast<size_t>(op.id)];
      row = describe(std::move(row), op.args);
    }
    made.arena = lay_out(made.variants, {max_tokens, limits.logit_slice});
    return made;
  };
  const auto emitter = [&] {
    return Emitter(config, weights, memory, target.info().activation_dtype, limits.max_positions);
  };
  Emitter model = emitter();
  frame = emit_model(model);
  steps = make(model, limits.max_tokens);
  if (!config.has_draft_layer) return;
  Emitter draft = emitter();
  emit_draft(draft);
  drafts = make(draft, std::min(limits.max_sequences, limits.max_tokens));
}

size_t DecoderPrograms::max_op_runs(const DecoderLimits& limits) const {
  const size_t of_a_slice = steps.variants[1].head.size() + 1;  // with the sampler
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
          .ffn_size = std::max(config.max_ffn_size(), config.eagle ? config.eagle->config.max_ffn_size() : 0),
          .qkv_size = config.qkv_size(),
          .heads = config.num_heads,
          .head_size = static_cast<int32_t>((widest_input(config) + config.num_heads - 1) / config.num_heads),
          .latent_row = config.is_latent() ? config.head_size : 0,
          .experts = config.num_experts,
          .experts_used = config.num_experts_used,
          .routed_layers = config.num_expert_layers(),
          .attention_kinds = attention_kinds_of(config, limits.max_positions),
          .is_recurrent = config.is_recurrent() || config.has_draft_layer,
          .scored_keys = config.indexer.most_chosen < limits.max_positions && config.indexer.most_chosen > 0
                             ? limits.max_positions
                             : 0};
}

Decoder::Decoder(const ModelConfig& config, ModelWeights weights, Backend& backend, const KvCache& kv,
                 const RecurrentStatePool& states, const DecoderLimits& limits)
    : config_(config),
      weights_(std::move(weights)),
      backend_(backend),
      limits_(limits),
      programs_(config_, weights_, make_constants(kv, states), backend_, limits_),
      values_(backend_.allocate(programs_.value_bytes(), "activations")) {
  for (StepPrograms* programs : {&programs_.steps, &programs_.drafts}) {
    for (Program& program : programs->variants)
      if (!program.values.empty())
        place_values(program, programs->arena, static_cast<std::byte*>(values_.data()));
  }
}

Tensor Decoder::forward(const ForwardBatch& batch, bool drafts) {
  const int32_t most = drafts ? std::min(limits_.max_sequences, limits_.max_tokens) : limits_.max_tokens;
  if (batch.num_tokens > most)
    fail("a step of {} tokens exceeds the workspace of {}", batch.num_tokens, most);
  Program& program = program_of(batch, drafts);
  run(program, program.body, backend_, batch, {});
  return logits(batch, 0, drafts);
}

Tensor Decoder::logits(const ForwardBatch& batch, int32_t first_row, bool drafts) {
  const RowSlice slice{first_row, std::min(batch.num_logit_rows - first_row, limits_.logit_slice)};
  Program& program = program_of(batch, drafts);
  if (slice.count > 0) run(program, program.head, backend_, batch, slice);
  Tensor logits = program.logits;
  logits.rows = slice.count;
  return logits;
}

Buffer Decoder::upload(const std::vector<float>& values, std::string_view what) {
  Buffer buffer = backend_.allocate(values.size() * sizeof(float), what);
  backend_.copy_to_device(buffer.data(), values.data(), buffer.bytes());
  return buffer;
}

DecoderMemory Decoder::make_constants(const KvCache& kv, const RecurrentStatePool& states) {
  DecoderMemory memory{.kv = &kv, .states = &states};
  const auto keep = [&](const std::vector<float>& values, std::string_view what) {
    constants_.push_back(upload(values, what));
    return static_cast<const float*>(constants_.back().data());
  };
  const auto tables = [&](const ModelConfig& config, const ModelWeights& weights) {
    std::vector<const float*> angles;
    for (size_t i = 0; i < config.ropes.size(); ++i) {
      const RopeConfig& rope = config.ropes[i];
      std::span<const float> factors;
      if (i == 0) factors = weights.rope_frequency_factors;
      if (rope.scaling.kind == RopeScaling::Kind::long_rope) {
        const bool is_long = limits_.max_positions > rope.scaling.original_context;
        factors = is_long ? weights.rope_long_factors : weights.rope_short_factors;
      }
      angles.push_back(
          keep(make_rope_table(rope, config.rotary_size_of(rope), factors, limits_.max_positions),
               "rotary table"));
    }
    return angles;
  };
  memory.angles = tables(config_, weights_);
  if (config_.eagle) memory.eagle_angles = tables(config_.eagle->config, weights_.eagle->model);
  if (const int64_t count = num_ones(config_, limits_.max_tokens); count > 0)
    memory.ones = keep(std::vector<float>(static_cast<size_t>(count), 1.0f), "weights of 1");
  if (const int64_t count = hidden_elements(config_, limits_); count > 0) {
    constants_.push_back(upload(std::vector<float>(static_cast<size_t>(count)), "hidden states for drafts"));
    memory.hidden = {static_cast<float*>(constants_.back().data()), limits_.max_sequences};
  }
  const AttentionTemperature& temperature = config_.temperature;
  if (temperature.scale == 0.0f) return memory;
  std::vector<float> scales;
  for (int32_t position = 0; position < limits_.max_positions; ++position) {
    const int32_t lengths = (position + temperature.first) / temperature.length;
    scales.push_back(static_cast<float>(1.0 + double{temperature.scale} * std::log1p(lengths)));
  }
  memory.q_scales = keep(scales, "scales of queries");
  return memory;
}

int64_t workspace_bytes(const ModelConfig& config, const DecoderPrograms& programs,
                        const DecoderLimits& limits) {
  int64_t of_a_position = (config.temperature.scale > 0.0f ? 1 : 0) + rotary_elements(config);
  if (config.eagle) of_a_position += rotary_elements(config.eagle->config);
  const int64_t constants = limits.max_positions * of_a_position + num_ones(config, limits.max_tokens) +
                            hidden_elements(config, limits);
  return static_cast<int64_t>(programs.value_bytes()) + constants * static_cast<int64_t>(sizeof(float));
}

}  // namespace minfer
