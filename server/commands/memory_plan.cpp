#include "server/commands/memory_plan.h"

#include <array>
#include <vector>

#include <fmt/ranges.h>

#include "engine/engine_options.h"
#include "kernels/cuda/weights/weight_layout.h"
#include "models/decoder/kv_cache.h"
#include "models/decoder/state_pool.h"
#include "profiling/report/text/table.h"

namespace minfer {
namespace {

constexpr std::array<DType, 3> kComparedKvTypes{DType::f32, DType::bf16, DType::f16};

std::string mebibytes(double bytes) {
  return fmt::format("{:.2f} MiB", bytes / (1 << 20));
}

/// Of a sequence as long as the context, in blocks as they are by default.
size_t longest_sequence_bytes(const ModelConfig& config, DType dtype) {
  const int32_t tokens = config.context_length, block_size = EngineOptions().block_size;
  const KvLayout layout = KvLayout::of(config, tokens, block_size);
  if (!layout.has_window_table)
    return KvCache::block_bytes(config, {}, dtype, 1) * static_cast<size_t>(tokens);
  return KvCache::sequence_bytes(config, layout, dtype, block_size, tokens);
}

std::string weights_text(const WeightSizes& sizes) {
  std::vector<std::string> others;
  if (sizes.loaded_bytes != sizes.file_bytes)
    others.push_back(mebibytes(static_cast<double>(sizes.file_bytes)) + " in the file");
  if (sizes.is_converted) others.push_back(mebibytes(static_cast<double>(sizes.cuda_bytes)) + " on a GPU");
  const std::string text = mebibytes(static_cast<double>(sizes.loaded_bytes));
  return others.empty() ? text : fmt::format("{} ({})", text, fmt::join(others, ", "));
}

/// Of models whose layers keep states of sequences; else nothing.
std::string states_text(const ModelConfig& config) {
  if (!config.has_states()) return "";
  const auto slot = static_cast<double>(StatePool::slot_bytes(config));
  const int32_t sequences = EngineOptions().max_num_seqs;
  return fmt::format(
      "states: {} of each running sequence, whatever its length: {} with --max-num-seqs {}; and of each copy "
      "for the prefix cache (--num-state-copies)\n",
      mebibytes(slot), mebibytes(slot * sequences), sequences);
}

}  // namespace

WeightSizes weight_sizes(std::span<const HostTensor> tensors) {
  WeightSizes sizes;
  for (const HostTensor& tensor : tensors) {
    sizes.file_bytes += tensor.bytes();
    sizes.loaded_bytes += tensor.loaded_bytes();
    sizes.cuda_bytes += cuda::reserved_bytes(tensor);
    sizes.is_converted |= cuda::device_dtype(tensor) != tensor.loaded_dtype();
  }
  return sizes;
}

nlohmann::ordered_json memory_plan_json(const ModelConfig& config, std::span<const HostTensor> tensors) {
  const WeightSizes sizes = weight_sizes(tensors);
  nlohmann::ordered_json plan{{"file_weight_bytes", sizes.file_bytes},
                              {"weight_bytes", sizes.loaded_bytes},
                              {"cuda_weight_bytes", sizes.cuda_bytes},
                              {"context_length", config.context_length}};
  for (DType dtype : kComparedKvTypes) {
    plan["kv_bytes_per_token"][std::string(name(dtype))] = KvCache::block_bytes(config, {}, dtype, 1);
    plan["kv_bytes_full_context"][std::string(name(dtype))] = longest_sequence_bytes(config, dtype);
  }
  if (config.has_states()) plan["state_bytes_per_sequence"] = StatePool::slot_bytes(config);
  return plan;
}

std::string memory_plan_table(const ModelConfig& config, std::span<const HostTensor> tensors) {
  Table table{
      .title = fmt::format("memory: weights {}, and the KV cache", weights_text(weight_sizes(tensors))),
      .columns = {"KV type", "bytes a token", fmt::format("one sequence of {}", config.context_length)},
      .rows = {}};
  for (DType dtype : kComparedKvTypes) {
    table.rows.push_back({std::string(name(dtype)),
                          std::to_string(KvCache::block_bytes(config, {}, dtype, 1)),
                          mebibytes(static_cast<double>(longest_sequence_bytes(config, dtype)))});
  }
  return text_table(table, 100) + states_text(config);
}

}  // namespace minfer
