#include "server/commands/memory_plan.h"

#include <array>

#include <fmt/format.h>

#include "models/decoder/kv_cache.h"
#include "profiling/report/table.h"

namespace minfer {
namespace {

constexpr std::array<DType, 3> kComparedKvTypes{DType::f32, DType::bf16, DType::f16};

std::string mebibytes(double bytes) {
  return fmt::format("{:.2f} MiB", bytes / (1 << 20));
}

}  // namespace

nlohmann::ordered_json memory_plan_json(const ModelConfig& config, size_t weight_bytes) {
  nlohmann::ordered_json plan{{"weight_bytes", weight_bytes}, {"context_length", config.context_length}};
  for (DType dtype : kComparedKvTypes) {
    const size_t token_bytes = KvCache::block_bytes(config, dtype, 1);
    plan["kv_bytes_per_token"][std::string(name(dtype))] = token_bytes;
    plan["kv_bytes_full_context"][std::string(name(dtype))] =
        token_bytes * static_cast<size_t>(config.context_length);
  }
  return plan;
}

std::string memory_plan_table(const ModelConfig& config, size_t weight_bytes) {
  Table table{
      .title =
          fmt::format("memory: weights {}, and the KV cache", mebibytes(static_cast<double>(weight_bytes))),
      .columns = {"KV type", "bytes a token", fmt::format("one sequence of {}", config.context_length)},
      .rows = {}};
  for (DType dtype : kComparedKvTypes) {
    const size_t token_bytes = KvCache::block_bytes(config, dtype, 1);
    table.rows.push_back({std::string(name(dtype)), std::to_string(token_bytes),
                          mebibytes(static_cast<double>(token_bytes) * config.context_length)});
  }
  return text_table(table, 100);
}

}  // namespace minfer
