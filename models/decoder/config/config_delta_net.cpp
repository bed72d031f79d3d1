#include "models/decoder/config/config_delta_net.h"

#include <algorithm>
#include <vector>

namespace minfer {
namespace {

constexpr int64_t kMostConvInputs = 16;

DeltaNetShape read_delta_shape(const GgufFile& file, const KeyReader& keys) {
  DeltaNetShape shape;
  shape.conv_size = keys.ranged("ssm.conv_kernel", 2, kMostConvInputs);
  shape.key_size = keys.ranged("ssm.state_size", 1, kMaxHeadSize);
  shape.key_heads = keys.ranged("ssm.group_count", 1, kMaxHeads);
  shape.value_heads = keys.ranged("ssm.time_step_rank", 1, kMaxHeads);
  if (shape.value_heads % shape.key_heads != 0) {
    fail<FileError>("{}: {} is {}, expected a multiple of {} = {}", file.name(),
                    keys.full_key("ssm.time_step_rank"), shape.value_heads, keys.full_key("ssm.group_count"),
                    shape.key_heads);
  }
  const int32_t columns = keys.ranged("ssm.inner_size", 1, kMaxHeads * kMaxHeadSize);
  shape.value_size = columns / shape.value_heads;
  if (columns % shape.value_heads != 0 || shape.value_size > kMaxHeadSize) {
    fail<FileError>("{}: {} is {}, expected {} = {} heads of at most {} elements", file.name(),
                    keys.full_key("ssm.inner_size"), columns, keys.full_key("ssm.time_step_rank"),
                    shape.value_heads, kMaxHeadSize);
  }
  return shape;
}

/// By an array, which counts layers that only predict further tokens too, or by the period of the layers that attend.
std::vector<bool> recurrent_layers(const KeyReader& keys, const ModelConfig& config) {
  constexpr std::string_view kFlags = "attention.recurrent_layers";
  if (keys.has(kFlags)) {
    std::vector<bool> flags = keys.flags_of_layers(kFlags, keys.ranged("block_count", 1, kMaxLayers));
    flags.resize(static_cast<size_t>(config.num_layers));
    return flags;
  }
  const int32_t period =
      keys.ranged("full_attention_interval", 2, kMaxLayers, config.architecture.delta_period);
  return delta_layers_by(period, config.num_layers);
}

}  // namespace

void read_delta_net(const GgufFile& file, const KeyReader& keys, ModelConfig& config) {
  if (config.architecture.delta_period == 0) return;
  config.delta_net = read_delta_shape(file, keys);
  config.delta_net.in_turn = config.architecture.values_in_turn;
  const std::vector<bool> recurrent = recurrent_layers(keys, config);
  if (std::ranges::count(recurrent, false) == 0) {
    fail<FileError>("{}: of {} layers none attends by {} or {}: not supported", file.name(),
                    config.num_layers, keys.full_key("attention.recurrent_layers"),
                    keys.full_key("full_attention_interval"));
  }
  set_delta_layers(config, recurrent);
}

}  // namespace minfer
