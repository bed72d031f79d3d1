#include "server/commands/inspect_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <fmt/ranges.h>

#include "engine/options/engine_options.h"
#include "kernels/cuda/weights/weight_layout.h"
#include "models/chat/read_chat_template.h"
#include "models/decoder/config/config_facts.h"
#include "models/decoder/memory/kv_cache.h"
#include "models/decoder/memory/recurrent_state_pool.h"
#include "models/gguf/printable.h"
#include "profiling/text/table.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownElements = 8;  // of an array in JSON

struct Total {
  int64_t tensors = 0;
  int64_t parameters = 0;
  size_t bytes = 0;
  size_t cuda_bytes = 0;  ///< in the memory of a GPU
  struct Converted {
    size_t bytes = 0;
    size_t cuda_bytes = 0;
  };
  /// The tensors that a GPU converts, by what they are (true: experts) and the type that they become.
  std::map<std::pair<bool, DType>, Converted> converted;
};

struct Totals {
  std::map<DType, Total> of_type;
  Total all;
};

void add(Total& total, const HostTensor& tensor) {
  const size_t cuda_bytes = cuda::reserved_bytes(tensor);
  ++total.tensors;
  total.parameters += tensor.count * tensor.rows * tensor.cols;
  total.bytes += tensor.bytes();
  total.cuda_bytes += cuda_bytes;
  const DType kept = cuda::device_dtype(tensor);
  if (kept == tensor.dtype) return;
  Total::Converted& converted = total.converted[{tensor.count > 1, kept}];
  converted.bytes += tensor.bytes();
  converted.cuda_bytes += cuda_bytes;
}

Totals totals_of(const GgufFile& file) {
  Totals totals;
  for (const HostTensor& tensor : file.tensors()) {
    add(totals.of_type[tensor.dtype], tensor);
    add(totals.all, tensor);
  }
  return totals;
}

/// Rows of cells as lines of aligned columns; from column `right_from` on they are numbers, aligned to the right.
std::string align_columns(const std::vector<std::vector<std::string>>& rows, size_t right_from) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      line += i < right_from ? fmt::format(" {:<{}} ", row[i], widths[i])
                             : fmt::format(" {:>{}} ", row[i], widths[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string type_name(const GgufFile::Entry& entry) {
  return entry.type == GgufType::array ? "array" : std::string(name(entry.type));
}

std::string metadata_table(const GgufFile& file) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& entry : file.metadata()) {
    rows.push_back({printable(entry.key), type_name(entry), file.describe(entry.key)});
  }
  return fmt::format("\nmetadata: {} keys\n{}", rows.size(), align_columns(rows, 3));
}

/// The names of the file's chat templates, and when each is used.
std::string template_line(const GgufFile& file) {
  std::vector<std::string> templates = chat_template_names(file);
  if (templates.empty()) return "";
  for (std::string& each : templates) {
    const bool is_used = each == kDefaultTemplate || each == kToolTemplate;
    each = printable(each) + (each == kToolTemplate ? " (when a request has tools)"
                              : is_used             ? ""
                                                    : " (not used)");
  }
  return fmt::format("\nchat templates: {}\n", fmt::join(templates, ", "));
}

std::string tensor_table(const GgufFile& file) {
  std::vector<std::vector<std::string>> rows{{"name", "type", "shape", "bytes"}};
  for (const HostTensor& tensor : file.tensors()) {
    rows.push_back({printable(tensor.name), std::string(name(tensor.dtype)),
                    fmt::format("[{}]", fmt::join(tensor.shape(), ", ")), fmt::to_string(tensor.bytes())});
  }
  return fmt::format("\ntensors: {}\n{}", file.tensors().size(), align_columns(rows, 3));
}

std::vector<std::string> total_row(std::string_view label, const Total& total) {
  const double bits = 8.0 * static_cast<double>(total.bytes) / static_cast<double>(total.parameters);
  return {std::string(label), fmt::to_string(total.tensors), fmt::to_string(total.parameters),
          fmt::to_string(total.bytes), fmt::format("{:.2f}", bits)};
}

/// How the CUDA backend converts weights that it cannot multiply with as they are.
std::string conversion_lines(const Totals& totals) {
  std::string lines;
  for (const auto& [dtype, total] : totals.of_type) {
    for (const auto& [become, bytes] : total.converted) {
      const auto& [are_experts, kept] = become;
      lines += fmt::format(
          "on a GPU {} converted to {} at load: {} bytes become {}\n",
          are_experts ? fmt::format("experts of {} are", name(dtype)) : fmt::format("{} is", name(dtype)),
          name(kept), bytes.bytes, bytes.cuda_bytes);
    }
  }
  return lines;
}

std::string totals_table(const GgufFile& file) {
  const Totals totals = totals_of(file);
  if (totals.all.tensors == 0) return "\nno tensors: a vocabulary\n";
  std::vector<std::vector<std::string>> rows{{"type", "tensors", "parameters", "bytes", "bits/parameter"}};
  for (const auto& [dtype, total] : totals.of_type)
    rows.push_back(total_row(name(dtype), total));
  rows.push_back(total_row("all", totals.all));
  return fmt::format("\ntotals\n{}{}", align_columns(rows, 1), conversion_lines(totals));
}

Json array_json(const GgufFile& file, const GgufFile::Entry& entry) {
  const auto first_of = [](auto values) {
    values.resize(std::min(values.size(), kShownElements));
    return Json(values);
  };
  const GgufType type = entry.element_type;
  return {{"element_type", name(type)},
          {"count", entry.count},
          {"first", type == GgufType::string                         ? first_of(file.get_strings(entry.key))
                    : type == GgufType::f32 || type == GgufType::f64 ? first_of(file.get_floats(entry.key))
                                                                     : first_of(file.get_ints(entry.key))}};
}

Json value_json(const GgufFile& file, const GgufFile::Entry& entry) {
  switch (entry.type) {
    case GgufType::array:
      return array_json(file, entry);
    case GgufType::string:
      return file.require_string(entry.key);
    case GgufType::boolean:
      return file.get_bool(entry.key).value();
    case GgufType::f32:
      return static_cast<float>(file.require_float(entry.key));  // with the digits of a float
    case GgufType::f64:
      return file.require_float(entry.key);
    case GgufType::u64:
      return Json::parse(file.describe(entry.key));  // may be above what get_int gives
    default:
      return file.require_int(entry.key);
  }
}

Json total_json(const Total& total) {
  return {{"tensors", total.tensors}, {"parameters", total.parameters}, {"bytes", total.bytes}};
}

constexpr std::array<DType, 3> kComparedKvTypes{DType::f32, DType::bf16, DType::f16};

std::string mebibytes(double bytes) {
  return fmt::format("{:.2f} MiB", bytes / (1 << 20));
}

/// Bytes of a sequence as long as the context, in blocks of the default size.
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

/// The states of models whose layers keep states of sequences; else empty.
std::string states_text(const ModelConfig& config) {
  if (!config.is_recurrent()) return "";
  const auto slot = static_cast<double>(RecurrentStatePool::slot_bytes(config));
  const int32_t sequences = EngineOptions().max_num_seqs;
  return fmt::format(
      "states: {} for each running sequence, whatever its length ({} with --max-num-seqs {}), and for each "
      "copy of the prefix cache (--num-state-copies)\n",
      mebibytes(slot), mebibytes(slot * sequences), sequences);
}

}  // namespace

std::string inspect_table(const GgufFile& file, bool with_tensors) {
  std::string text = fmt::format("{}: GGUF version {}, {} bytes\n", printable(file.name(), 4096),
                                 file.version(), file.file_bytes());
  text += metadata_table(file);
  text += template_line(file);
  if (with_tensors && !file.tensors().empty()) text += tensor_table(file);
  return text + totals_table(file);
}

Json inspect_json(const GgufFile& file, bool with_tensors) {
  Json report{{"file", file.name()}, {"version", file.version()}, {"file_bytes", file.file_bytes()}};
  Json& metadata = report["metadata"] = Json::object();
  for (const auto& entry : file.metadata()) {
    metadata[std::string(entry.key)] = {{"type", type_name(entry)}, {"value", value_json(file, entry)}};
  }
  report["chat_templates"] = chat_template_names(file);
  if (with_tensors) {
    Json& tensors = report["tensors"] = Json::array();
    for (const HostTensor& tensor : file.tensors())
      tensors.push_back({{"name", tensor.name},
                         {"type", name(tensor.dtype)},
                         {"shape", tensor.shape()},
                         {"bytes", tensor.bytes()}});
  }
  const Totals totals = totals_of(file);
  Json& of_type = report["totals"] = Json::object();
  for (const auto& [dtype, total] : totals.of_type) {
    Json& entry = of_type[std::string(name(dtype))] = total_json(total);
    entry["cuda_bytes"] = total.cuda_bytes;
    for (const auto& [become, bytes] : total.converted)
      entry[become.first ? "cuda_expert_type" : "cuda_type"] = name(become.second);
  }
  of_type["all"] = total_json(totals.all);
  return report;
}

std::string shape_table(const ModelConfig& config) {
  std::vector<std::vector<std::string>> rows;
  for (const ConfigFact& fact : config_facts(config))
    rows.push_back({fact.name, fact.value});
  return fmt::format("shape\n{}\n", align_columns(rows, 2));
}

Json shape_json(const ModelConfig& config) {
  Json shape = Json::object();
  for (const ConfigFact& fact : config_facts(config))
    shape[fact.name] = fact.value;
  return shape;
}

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
  if (config.is_recurrent()) plan["state_bytes_per_sequence"] = RecurrentStatePool::slot_bytes(config);
  return plan;
}

std::string memory_plan_table(const ModelConfig& config, std::span<const HostTensor> tensors) {
  Table table{
      .title = fmt::format("memory: weights {}, and the KV cache", weights_text(weight_sizes(tensors))),
      .columns = {"KV type", "bytes a token", fmt::format("one sequence of {}", config.context_length)}};
  for (DType dtype : kComparedKvTypes) {
    table.add(name(dtype), KvCache::block_bytes(config, {}, dtype, 1),
              mebibytes(static_cast<double>(longest_sequence_bytes(config, dtype))));
  }
  return text_table(table, 100) + states_text(config);
}

}  // namespace minfer
