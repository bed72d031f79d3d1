#include "server/kv_events/kv_event_encoder.h"

#include <span>
#include <string_view>

namespace minfer {
namespace {

/// An event as a map or an array; only a map has the names.
class EventWriter {
 public:
  EventWriter(MsgpackWriter& out, KvEventFormat format, size_t num_fields, std::string_view type)
      : out_(out), named_(format == KvEventFormat::map) {
    if (named_) {
      out_.map(num_fields + 1);
      out_.string("type");
    } else {
      out_.array(num_fields + 1);
    }
    out_.string(type);
  }

  MsgpackWriter& field(std::string_view name) {
    if (named_) out_.string(name);
    return out_;
  }
  template <class Number>
  void numbers(std::string_view name, std::span<const Number> values) {
    field(name).array(values.size());
    for (const Number value : values)
      out_.unsigned_integer(static_cast<uint64_t>(value));
  }

 private:
  MsgpackWriter& out_;
  bool named_;
};

/// vLLM's name of the tier from which requests compute; others mean a second tier, from which blocks are fetched. So a CPU has it too.
constexpr std::string_view kMedium = "GPU";

void write_stored(MsgpackWriter& out, KvEventFormat format, const KvEventBatch::Event& event,
                  std::span<const uint64_t> hashes, std::span<const TokenId> tokens, int32_t block_size) {
  EventWriter fields(out, format, 7, "BlockStored");
  fields.numbers("block_hashes", hashes);
  MsgpackWriter& parent = fields.field("parent_block_hash");
  event.parent ? parent.unsigned_integer(*event.parent) : parent.nil();
  fields.numbers("token_ids", tokens);
  fields.field("block_size").unsigned_integer(static_cast<uint64_t>(block_size));
  fields.field("lora_id").nil();
  fields.field("medium").string(kMedium);
  fields.field("lora_name").nil();
}

}  // namespace

std::string encode_kv_events(const KvEventBatch& batch, double time_s, KvEventFormat format) {
  std::string bytes;
  bytes.reserve(64 + 96 * batch.events.size() + 9 * batch.hashes.size() + 5 * batch.tokens.size());
  MsgpackWriter out(bytes);
  out.array(3);
  out.number(time_s);
  out.array(batch.events.size());
  std::span<const uint64_t> hashes = batch.hashes;
  std::span<const TokenId> tokens = batch.tokens;
  for (const KvEventBatch::Event& event : batch.events) {
    const auto num_blocks = static_cast<size_t>(event.num_blocks);
    const auto event_hashes = hashes.first(num_blocks);
    hashes = hashes.subspan(num_blocks);
    switch (event.kind) {
      case KvEventBatch::Kind::stored: {
        const size_t num_tokens = num_blocks * static_cast<size_t>(batch.block_size);
        write_stored(out, format, event, event_hashes, tokens.first(num_tokens), batch.block_size);
        tokens = tokens.subspan(num_tokens);
        break;
      }
      case KvEventBatch::Kind::removed: {
        EventWriter fields(out, format, 2, "BlockRemoved");
        fields.numbers("block_hashes", event_hashes);
        fields.field("medium").string(kMedium);
        break;
      }
      case KvEventBatch::Kind::cleared:
        EventWriter(out, format, 0, "AllBlocksCleared");
        break;
    }
  }
  out.unsigned_integer(0);
  return bytes;
}

}  // namespace minfer
