#include <algorithm>
#include <cmath>

#include "models/decoder/decoder.h"

/// The constants that a decoder computes once for its ops: rotary angles, scales of queries, ones.
namespace minfer {
namespace {

/// 0: no layer needs any.
int64_t num_ones(const ModelConfig& config, int64_t max_tokens) {
  int64_t count = 0;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    if (config.architecture.qk_norm == QkNorm::rotated_head || config.architecture.norms_values)
      count = std::max<int64_t>(count, config.heads(layer).size);
  }
  if (config.architecture.expert_weights_input) count = std::max(count, max_tokens * config.num_experts_used);
  return count;
}

}  // namespace

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
  for (size_t i = 0; i < config_.ropes.size(); ++i) {
    const RopeConfig& rope = config_.ropes[i];
    std::span<const float> factors;
    if (i == 0) factors = weights_.rope_frequency_factors;
    if (rope.scaling.kind == RopeScaling::Kind::long_rope) {
      const bool is_long = limits_.max_positions > rope.scaling.original_context;
      factors = is_long ? weights_.rope_long_factors : weights_.rope_short_factors;
    }
    memory.angles.push_back(keep(
        make_rope_table(rope, config_.rotary_size_of(rope), factors, limits_.max_positions), "rotary table"));
  }
  if (const int64_t count = num_ones(config_, limits_.max_tokens); count > 0)
    memory.ones = keep(std::vector<float>(static_cast<size_t>(count), 1.0f), "weights of 1");
  const AttentionTemperature& temperature = config_.temperature;
  if (temperature.scale == 0.0f) return memory;
  std::vector<float> scales;
  for (int32_t position = 0; position < limits_.max_positions; ++position) {
    const int32_t lengths = (position + 1) / temperature.length;
    scales.push_back(static_cast<float>(1.0 + double{temperature.scale} * std::log1p(lengths)));
  }
  memory.q_scales = keep(scales, "scales of queries");
  return memory;
}

int64_t workspace_bytes(const ModelConfig& config, const DecoderPrograms& programs,
                        const DecoderLimits& limits) {
  int64_t of_a_position = config.temperature.scale > 0.0f ? 1 : 0;
  for (const RopeConfig& rope : config.ropes)
    of_a_position += config.rotary_size_of(rope);
  const int64_t constants = limits.max_positions * of_a_position + num_ones(config, limits.max_tokens);
  return static_cast<int64_t>(programs.arena.bytes) + constants * static_cast<int64_t>(sizeof(float));
}

}  // namespace minfer
