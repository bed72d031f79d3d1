#include <algorithm>
#include <cmath>

#include "models/decoder/decoder.h"

/// What a decoder computes once and its ops read: rotary angles, scales of queries, ones.
namespace minfer {

void Decoder::make_rope_tables() {
  for (size_t i = 0; i < config_.ropes.size(); ++i) {
    const RopeConfig& rope = config_.ropes[i];
    std::span<const float> factors;
    if (i == 0) factors = weights_.rope_frequency_factors;
    if (rope.scaling.kind == RopeScaling::Kind::long_rope) {
      const bool is_long = limits_.max_positions > rope.scaling.original_context;
      factors = is_long ? weights_.rope_long_factors : weights_.rope_short_factors;
    }
    const std::vector<float> table =
        make_rope_table(rope, config_.rotary_size_of(rope), factors, limits_.max_positions);
    rope_tables_.push_back(backend_.allocate(table.size() * sizeof(float), "rotary table"));
    backend_.copy_to_device(rope_tables_.back().data(), table.data(), rope_tables_.back().bytes());
  }
}

int64_t Decoder::num_ones(const ModelConfig& config, int64_t max_tokens) {
  int64_t count = 0;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    if (config.architecture.qk_norm == QkNorm::rotated_head || config.architecture.norms_values)
      count = std::max<int64_t>(count, config.heads(layer).size);
  }
  if (config.architecture.expert_weights_input) count = std::max(count, max_tokens * config.num_experts_used);
  return count;
}

void Decoder::make_constants() {
  const auto upload = [this](const std::vector<float>& values, std::string_view what) {
    Buffer buffer = backend_.allocate(values.size() * sizeof(float), what);
    backend_.copy_to_device(buffer.data(), values.data(), buffer.bytes());
    return buffer;
  };
  if (const int64_t count = num_ones(config_, limits_.max_tokens); count > 0)
    ones_ = upload(std::vector<float>(static_cast<size_t>(count), 1.0f), "weights of 1");
  const AttentionTemperature& temperature = config_.temperature;
  if (temperature.scale == 0.0f) return;
  std::vector<float> scales;
  for (int32_t position = 0; position < limits_.max_positions; ++position) {
    const int32_t lengths = (position + 1) / temperature.length;
    scales.push_back(static_cast<float>(1.0 + double{temperature.scale} * std::log1p(lengths)));
  }
  q_scales_ = upload(scales, "scales of queries");
}

}  // namespace minfer
