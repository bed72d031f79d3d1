#include "engine/memory/kv_events.h"

namespace minfer {

void KvEventBatch::clear() {
  events.clear();
  hashes.clear();
  tokens.clear();
}

void KvEventBatch::add_stored(std::optional<uint64_t> parent, uint64_t hash,
                              std::span<const TokenId> block_tokens) {
  const bool continues = !events.empty() && events.back().kind == Kind::stored && parent == hashes.back();
  if (!continues) events.push_back({.kind = Kind::stored, .parent = parent});
  ++events.back().num_blocks;
  hashes.push_back(hash);
  tokens.insert(tokens.end(), block_tokens.begin(), block_tokens.end());
}

void KvEventBatch::add_removed(uint64_t hash) {
  if (events.empty() || events.back().kind != Kind::removed) {
    events.push_back({.kind = Kind::removed, .parent = {}});
  }
  ++events.back().num_blocks;
  hashes.push_back(hash);
}

void KvEventBatch::add_cleared() {
  events.push_back({.kind = Kind::cleared, .parent = {}});
}

KvEventFeed::KvEventFeed(BlockManager& blocks, KvEventSink& sink) : blocks_(blocks), sink_(sink) {
  batch_.block_size = blocks.block_size();
  blocks_.record_events(&batch_);
}

KvEventFeed::~KvEventFeed() {
  blocks_.record_events(nullptr);
}

void KvEventFeed::end_step() {
  if (sink_.wants_all()) {
    batch_.clear();
    blocks_.announce_all();
  }
  if (batch_.empty()) return;
  sink_.take(batch_);
  batch_.clear();
  batch_.block_size = blocks_.block_size();
}

}  // namespace minfer
