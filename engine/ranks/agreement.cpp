#include "engine/ranks/agreement.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>
#include <xxhash.h>

#include "engine/ranks/rank_backends.h"
#include "kernels/base/error.h"
#include "kernels/comm/process_group.h"
#include "kernels/comm/rank_gpus.h"
#include "models/decoder/config/config_facts.h"

namespace minfer {
namespace {

/// The version of messages between ranks; a process with another one would misread them.
constexpr int kProtocol = 3;
constexpr size_t kMostDifferences = 4;
/// The sampled bytes of a tensor: the ends of its first, middle and last row, so that little of a large file is read.
constexpr size_t kBytesOfRow = 256;

uint64_t hash_some_bytes(const HostTensor& tensor) {
  const size_t bytes = row_bytes(tensor.dtype, tensor.cols), some = std::min(bytes, kBytesOfRow);
  uint64_t hash = 0;
  for (const int64_t matrix : {int64_t{0}, tensor.count - 1}) {
    for (const int64_t row : {int64_t{0}, tensor.rows / 2, tensor.rows - 1}) {
      const std::byte* begin = tensor.row(matrix, row);
      hash = XXH3_64bits_withSeed(begin, some, hash);
      hash = XXH3_64bits_withSeed(begin + bytes - some, some, hash);
    }
  }
  return hash;
}

std::string describe(const HostTensor& tensor) {
  const std::string shape =
      fmt::format("{} [{}, {}, {}]", name(tensor.dtype), tensor.count, tensor.rows, tensor.cols);
  return tensor.data == nullptr ? shape : fmt::format("{}, bytes {:016x}", shape, hash_some_bytes(tensor));
}

}  // namespace

std::vector<RankFact> rank_facts(const ModelSource& source, const EngineOptions& options,
                                 int32_t logit_slice) {
  const ModelConfig& config = source.config();
  std::vector<RankFact> facts;
  const auto add = [&](std::string fact, const auto& value) {
    facts.push_back({std::move(fact), fmt::format("{}", value)});
  };
  const auto type = [](const std::optional<DType>& dtype) { return dtype ? name(*dtype) : "auto"; };
  add("version", fmt::format("{} (protocol {})", MINFER_VERSION, kProtocol));
  add("device", uses_cuda(options) ? "cuda" : "cpu");
  add("max-model-len", options.max_model_len);
  add("max-num-seqs", options.max_num_seqs);
  add("max-num-batched-tokens", options.max_num_batched_tokens);
  add("block-size", options.block_size);
  add("num-blocks", options.num_blocks);
  add("kv-cache-memory", options.kv_cache_bytes);
  add("num-state-copies", options.num_state_copies.value_or(-1));
  add("kv-cache-dtype", type(options.kv_cache_dtype));
  add("dtype", type(options.dtype));
  add("quantization", type(options.quantization));
  add("tensor-parallel-size", options.tensor_parallel_size);
  add("all-reduce", static_cast<int>(options.all_reduce));
  add("steps ahead", options.steps_ahead.value_or(-1));
  add("rows of logits at a time", logit_slice);
  add("model", config.name);
  for (const ConfigFact& fact : config_facts(config))
    add(fact.name, fact.value);
  add("tensors", source.tensors().size());
  for (const HostTensor& tensor : source.tensors())
    add("tensor " + tensor.name, describe(tensor));
  return facts;
}

// One line of text: names and values come from files.
std::string write_facts(std::span<const RankFact> facts) {
  std::string text;
  for (const RankFact& fact : facts)
    text += on_one_line(fact.name) + '\t' + on_one_line(fact.value) + '\n';
  return text;
}

std::vector<RankFact> read_facts(std::string_view text) {
  std::vector<RankFact> facts;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t tab = std::min(line.find('\t'), line.size());
    facts.push_back(
        {std::string(line.substr(0, tab)), std::string(line.substr(std::min(tab + 1, line.size())))});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return facts;
}

std::string find_difference(std::string_view who, std::span<const RankFact> theirs,
                            std::span<const RankFact> first) {
  std::unordered_map<std::string_view, std::string_view> values;
  for (const RankFact& fact : theirs)
    values.emplace(fact.name, fact.value);
  std::string found;
  size_t num_found = 0;
  for (const RankFact& fact : first) {
    const auto value = values.find(fact.name);
    if (value != values.end() && value->second == fact.value) continue;
    if (++num_found > kMostDifferences) continue;
    found += num_found == 1 ? fmt::format("{}: ", who) : "; ";
    found += value == values.end()
                 ? fmt::format("{} is missing, rank 0 has {}", fact.name, fact.value)
                 : fmt::format("{} is {}, rank 0 has {}", fact.name, value->second, fact.value);
  }
  if (num_found > kMostDifferences) found += fmt::format("; and {} more", num_found - kMostDifferences);
  if (num_found == 0 && theirs.size() != first.size())
    return fmt::format("{}: {} facts, rank 0 has {}", who, theirs.size(), first.size());
  return found;
}

void agree(const ModelSource& source, const EngineOptions& options, int32_t logit_slice) {
  ProcessGroup& processes = *options.processes;
  const std::vector<std::string> facts =
      processes.exchange(ProcessGroup::Tag::agreement, write_facts(rank_facts(source, options, logit_slice)));
  const std::vector<RankFact> first = read_facts(facts.front());
  for (int32_t other = 1; other < processes.rank().count; ++other) {
    const std::string difference =
        find_difference(processes.name_of(other), read_facts(facts[static_cast<size_t>(other)]), first);
    if (difference.empty()) continue;
    processes.fail("ranks differ: " + difference);  // a rank that cannot read the texts hears it this way
    fail("ranks differ: {}", difference);
  }
}

}  // namespace minfer
