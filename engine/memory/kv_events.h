#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/memory/block_manager.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// Changes of the prefix cache, in order. Flat arrays, so that a batch that is reused allocates nothing.
///
/// A reader that applies them to a set of hashes holds a mirror of the cache. A hash stands for the tokens of its
/// block and all tokens before them. It is stored once until it is removed, and its parent is there as long as it is.
struct KvEventBatch {
  enum class Kind : uint8_t {
    stored,   ///< a chain of blocks: each is the parent of the next
    removed,  ///< blocks, the tail of a prefix before its head
    cleared,  ///< all blocks that were stored before
  };

  struct Event {
    Kind kind;
    int32_t num_blocks = 0;          ///< the next ones of `hashes`
    std::optional<uint64_t> parent;  ///< stored: of the first block; absent: it begins a prefix
  };

  int32_t block_size = 0;
  std::vector<Event> events;
  std::vector<uint64_t> hashes;  ///< of all events
  std::vector<TokenId> tokens;   ///< of the stored blocks, block_size each

  bool empty() const { return events.empty(); }
  size_t size_bytes() const {
    return events.size() * sizeof(Event) + hashes.size() * sizeof(uint64_t) + tokens.size() * sizeof(TokenId);
  }
  void clear();
  void add_stored(std::optional<uint64_t> parent, uint64_t hash, std::span<const TokenId> block_tokens);
  void add_removed(uint64_t hash);
  void add_cleared();
};

/// Takes the changes of the prefix cache from the engine's thread, without making that thread wait.
class KvEventSink {
 public:
  virtual ~KvEventSink() = default;
  /// True if the next batch is to be the whole cache (`cleared`, then all stored blocks): the
  /// sink has taken nothing yet, or something was lost since, and there is room for more now.
  virtual bool wants_all() = 0;
  /// The changes of a step. The sink may swap the batch for an empty one.
  virtual void take(KvEventBatch& batch) = 0;
};

/// Hands a block manager's recorded events to a sink, once a step. Engine thread.
class KvEventFeed {
 public:
  /// Both outlive the feed; the block manager records from here on.
  KvEventFeed(BlockManager& blocks, KvEventSink& sink);
  ~KvEventFeed();
  KvEventFeed(const KvEventFeed&) = delete;
  KvEventFeed& operator=(const KvEventFeed&) = delete;

  void end_step();

 private:
  BlockManager& blocks_;
  KvEventSink& sink_;
  KvEventBatch batch_;
};

}  // namespace minfer
