#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/request/sequence.h"
#include "models/decoder/memory/kv_layout.h"

namespace minfer {

struct KvEventBatch;

/// Hash of a full block, chained: `parent` is the hash of the block before it. For the
/// first block, `parent` is a number made from the hash key and the sequence's salt.
using BlockHash = uint64_t (*)(uint64_t parent, std::span<const TokenId> tokens);

/// XXH3, 64 bits, seeded with the parent's hash.
uint64_t xxh3_block_hash(uint64_t parent, std::span<const TokenId> tokens);
/// The key of a full block, chained: SHA-256 of the key of the block before it and of its tokens. In front of the first block stands that
/// of `root`, a hash of all else that KV depends on, and the salt. Nobody can find two contents with one key.
BlockKey hash_behind(const BlockKey& before, std::span<const std::byte> content);

struct BlockManagerOptions {
  int32_t num_blocks = 0;
  int32_t block_size = 16;  ///< tokens of a block, in layers without windows if those have their own
  bool enable_prefix_caching = true;
  /// Where the hashes begin. A key that clients do not know keeps them from grinding out prompts whose hashes collide.
  uint64_t hash_key = 0;
  BlockHash hash = xxh3_block_hash;  ///< tests pass a hash that collides
  /// Tokens of context, the token itself included, that layers whose blocks are given back read; 0: no blocks are given back.
  int32_t window = 0;
  /// Tokens of a block of layers with windows; a block of the other layers has a multiple of it. 0: all layers share one table.
  int32_t window_block_size = 0;
  int64_t max_tokens_under_way = 0;  ///< tokens of a sequence in uncommitted steps
};

/// Leading blocks of a sequence that the prefix cache holds. Reuse the object, so that matching allocates nothing.
struct PrefixMatch {
  std::vector<BlockId> blocks;
  std::vector<BlockId> window_blocks = {};  ///< blocks that the next token reads in layers with windows
  int32_t num_before_window = 0;            ///< blocks of layers with windows in front of them
  /// How many leading blocks, of those found first, hold only prompt tokens: these are shared; the blocks behind them continue an answer.
  int32_t num_of_prompts = 0;
  int32_t num_live = 0;  ///< blocks that running sequences hold: adopting them uses no free block

  void clear() {
    blocks.clear();
    window_blocks.clear();
    num_before_window = num_of_prompts = num_live = 0;
  }
};

/// Bookkeeping of the paged KV cache (PagedAttention, Kwon et al. 2023) and of its prefix cache.
/// Host only: it knows which block holds which tokens, but not where the memory is. One thread.
///
/// Each block is either live (held by `ref_count` >= 1 running sequences) or on the free list. A
/// published block, live or free, can be found by the tokens it holds and all tokens before it. A free
/// block keeps its content until it is taken, so the free list is the LRU cache: blocks are taken from
/// the front and freed to the back. A sequence's tail is freed before its head, so that a cached
/// block's predecessor is never evicted before the block. Free blocks without content are taken first.
///
/// With a window, a running sequence gives back the blocks behind the window, head first. They stay cached until they are
/// taken, perhaps before the blocks that follow them. Those later blocks are then no longer found, until they are taken too.
///
/// Layers with windows may have a block table of their own (KvLayout), beside the other layers' table, which keeps everything. Blocks
/// of both come from the same free list. A block of the window table is published under two things: the content id of the block of
/// the other table that holds the same tokens, and its place in that block. So it is found without the blocks in front of it. A
/// cached prefix reaches as far as the other table has all blocks and the window table has the blocks that the next token reads.
///
/// A hit is exact, not probable: beyond the hash, it compares the block's tokens and its predecessor's content id (for a first block,
/// the salt). Two blocks have the same content id if and only if they hold the same tokens after the same prefix under the same salt. A
/// sequence finds no block of another salt (Sequence::cache_salt), so the time to the first token tells nobody what such blocks hold.
///
/// Somebody else may keep a mirror of what is published (record_events). A mirror takes a hash for its content. So
/// if the hashes of contents collide, only one content is announced, and no block behind the others: the mirror
/// then knows too little, never too much. Salted prefixes are not announced: they are nobody else's business.
///
/// Nothing is allocated after construction, except a sequence's own tables, a copy of the salt
/// with each first block that has one, and recorded events. Every call costs O(blocks it touches).
class BlockManager {
 public:
  /// Throws Error if a size is not positive or if there are more slots than 32 bits count.
  explicit BlockManager(const BlockManagerOptions& options);
  BlockManager(const BlockManager&) = delete;
  BlockManager& operator=(const BlockManager&) = delete;

  /// Finds the longest cached prefix of `sequence`, which must hold no blocks. The
  /// prefix ends before the last token: at least one token is left to compute, since
  /// its logits are wanted. Changes nothing but the hashes remembered in the sequence.
  void match_prefix(Sequence& sequence, PrefixMatch& match) const;
  /// Cuts a match to its first `num_blocks` blocks. Only where all layers share a table.
  void shorten(PrefixMatch& match, int32_t num_blocks) const;
  /// The content id of a published block and all blocks before it: a number that no other prefix has or ever had.
  uint64_t content(BlockId id) const { return block(id).content; }
  /// Pins the blocks of a match and makes them the start of the sequence's block table: they count as
  /// scheduled, computed and published. `match` must come from match_prefix(), with no other call in between.
  void adopt_prefix(Sequence& sequence, const PrefixMatch& match);
  /// Appends free blocks until the tables cover `num_tokens`. Returns false and changes nothing if there are too few.
  bool allocate(Sequence& sequence, int32_t num_tokens);
  /// Publishes the full blocks among the first `num_computed` tokens: their KV is written, and others may share it from now on.
  void publish(Sequence& sequence);
  /// Lets go of the blocks that no token from `num_computed` on reads: the blocks behind that token's window.
  /// Where all layers share a table, one published block stays, since the next block to be published names it.
  void release_behind_window(Sequence& sequence);
  /// Lets go of all blocks of the sequence. Published content stays until its block is taken.
  void release(Sequence& sequence);

  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t block_size() const { return block_size_; }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }  ///< cached ones included
  int32_t num_live() const { return num_blocks() - num_free(); }
  /// The most blocks that a sequence of `num_tokens` tokens holds.
  int32_t blocks_for(int32_t num_tokens) const { return static_cast<int32_t>(sizes_.blocks_for(num_tokens)); }
  int64_t most_tokens() const { return sizes_.most_tokens(num_blocks()); }  ///< of a sequence alone
  /// Blocks that allocate() would append.
  int32_t num_lacking(const Sequence& sequence, int32_t num_tokens) const;
  int32_t num_covered_tokens(const Sequence& sequence) const;  ///< tokens that its blocks have room for
  /// Blocks that a sequence may need for its next token.
  int32_t blocks_to_grow() const { return has_window_table() ? 2 : 1; }
  /// Reserves a sequence's tables, so that they grow up to `num_tokens` tokens without an allocation.
  void reserve(Sequence& sequence, int32_t num_tokens) const;

  /// From here on, adds to `batch` what is published and what is evicted. `batch` outlives the
  /// recording; null ends it. Blocks that are published already are not announced before announce_all().
  void record_events(KvEventBatch* batch) { events_ = batch; }
  /// Adds all published blocks, as if the cache had been cleared and filled anew. O(blocks log blocks).
  void announce_all();

  using KeepBlock = std::function<void(BlockId, const BlockKey&)>;
  /// From here on, `keep` gets each published block whose memory is about to be taken. Before the first block is published.
  void keep_blocks(const BlockKey& root, KeepBlock keep);
  /// The key of a full block of a sequence. After keep_blocks().
  const BlockKey& key(Sequence& sequence, int32_t index) const;
  /// Gives `keep` all published blocks, the most recently used first.
  void each_published(const KeepBlock& keep) const;

  /// Verifies every invariant above in O(blocks); throws std::logic_error naming the first that fails. `running`:
  /// all sequences that hold blocks. For tests, which define it (tests/support/engine/memory_checks.cpp).
  void check(std::span<const Sequence* const> running) const;
  int32_t num_cached() const;  ///< free blocks that still hold published content; for tests too

 private:
  static constexpr BlockId kNone = -1;

  struct Block {
    int32_t ref_count = 0;
    std::list<BlockId>::iterator place;            ///< in free_ while ref_count is 0, else in held_
    BlockId hash_prev = kNone, hash_next = kNone;  ///< blocks of the same bucket, while published
    uint64_t hash = 0;
    uint64_t content = 0;         ///< content id; 0: not published
    uint64_t parent_content = 0;  ///< content id of the block before it; 0: it is the first
    /// For layers with windows: the part of the content that the block holds; kNone: all of it, for the other layers.
    int32_t part = kNone;
    bool announced = false;     ///< the mirror holds its hash, for this content
    bool is_of_prompt = false;  ///< while published: all its tokens were its publisher's prompt
  };

  Block& block(BlockId id) { return blocks_[static_cast<size_t>(id)]; }
  const Block& block(BlockId id) const { return blocks_[static_cast<size_t>(id)]; }
  BlockId& bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }
  BlockId bucket(uint64_t hash) const { return buckets_[hash & (buckets_.size() - 1)]; }
  std::span<const TokenId> cached_tokens(BlockId id) const;
  std::span<const TokenId> block_tokens(const Sequence& sequence, int32_t index) const;
  std::string_view salt(BlockId first_block) const;
  uint64_t first_parent_hash(const Sequence& sequence) const;
  uint64_t block_hash(Sequence& sequence, int32_t index) const;
  BlockId find(uint64_t hash, uint64_t parent_content, std::string_view salt,
               std::span<const TokenId> tokens) const;
  BlockId find(Sequence& sequence, int32_t index, uint64_t parent_content) const;
  BlockId find_part(uint64_t content, int32_t part) const;
  bool has_window_table() const { return sizes_.window_block_size > 0; }
  int32_t num_parts() const { return block_size_ / sizes_.window_block_size; }
  void match_windows(PrefixMatch& match) const;
  void count_live(PrefixMatch& match) const;
  void adopt_windows(Sequence& sequence, const PrefixMatch& match);
  void release_windows(Sequence& sequence);
  void release_windows_behind(Sequence& sequence, int32_t num_behind);

  void pin(BlockId id);
  BlockId take_free();
  void let_go(BlockId id);
  void unpublish(BlockId id);
  void publish_block(Sequence& sequence, int32_t index);
  void publish_parts(Sequence& sequence, int32_t index);
  void add_to_bucket(BlockId id);
  void announce(BlockId id, const Block* parent);
  bool is_announced(uint64_t hash) const;
  void check_references(std::span<const Sequence* const> running) const;
  void check_window_blocks(const Sequence& sequence, std::vector<int32_t>& references) const;
  void check_free_list() const;
  void check_published() const;

  int32_t block_size_;
  KvBlockSizes sizes_;
  bool enable_prefix_caching_;
  int32_t window_;
  uint64_t hash_key_;
  BlockHash hash_;
  std::vector<Block> blocks_;
  std::vector<BlockId> buckets_;                    ///< heads of the hash chains; a power of two
  std::vector<TokenId> tokens_;                     ///< [num_blocks, block_size] tokens of published blocks
  std::unordered_map<BlockId, std::string> salts_;  ///< salts of published first blocks that have one
  std::list<BlockId> free_, held_;                  ///< nodes move between them: nothing is allocated
  uint64_t next_content_ = 1;
  KvEventBatch* events_ = nullptr;  ///< null: nothing is recorded
  KeepBlock keep_;                  ///< null: nobody keeps blocks, and there are no keys
  BlockKey key_root_{};
  std::vector<BlockKey> keys_;  ///< [num_blocks] of published blocks
};

}  // namespace minfer
