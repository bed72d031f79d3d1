#include <span>

#include <nlohmann/json.hpp>

#include "server/kv_events/kv_event_publisher.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// vLLM's name of the tier from which requests compute; others mean a second tier, from which blocks are fetched. So a CPU has it too.
constexpr const char* kMedium = "GPU";

/// The fields of the next event, by name and in order, out of the hashes and tokens that are left of the batch.
Json next_event(const KvEventBatch::Event& event, int32_t block_size, std::span<const uint64_t>& hashes,
                std::span<const TokenId>& tokens) {
  if (event.kind == KvEventBatch::Kind::cleared) return {{"type", "AllBlocksCleared"}};
  const auto num_blocks = static_cast<size_t>(event.num_blocks);
  const auto of_event = hashes.first(num_blocks);
  hashes = hashes.subspan(num_blocks);
  if (event.kind == KvEventBatch::Kind::removed)
    return {{"type", "BlockRemoved"}, {"block_hashes", of_event}, {"medium", kMedium}};
  const size_t num_tokens = num_blocks * static_cast<size_t>(block_size);
  const auto its_tokens = tokens.first(num_tokens);
  tokens = tokens.subspan(num_tokens);
  return {{"type", "BlockStored"},
          {"block_hashes", of_event},
          {"parent_block_hash", event.parent ? Json(*event.parent) : Json()},
          {"token_ids", its_tokens},
          {"block_size", block_size},
          {"lora_id", nullptr},
          {"medium", kMedium},
          {"lora_name", nullptr}};
}

}  // namespace

std::string encode_kv_events(const KvEventBatch& batch, double time_s, KvEventFormat format) {
  std::span<const uint64_t> hashes = batch.hashes;
  std::span<const TokenId> tokens = batch.tokens;
  Json events = Json::array();
  for (const KvEventBatch::Event& event : batch.events) {
    Json fields = next_event(event, batch.block_size, hashes, tokens);
    Json& made = events.emplace_back(format == KvEventFormat::map ? std::move(fields) : Json::array());
    if (format == KvEventFormat::map) continue;
    for (auto& [name, value] : fields.items())
      made.push_back(std::move(value));
  }
  std::string bytes;
  Json::to_msgpack(Json::array({time_s, std::move(events), 0}), bytes);
  return bytes;
}

}  // namespace minfer
