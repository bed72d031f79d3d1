#include "engine/memory/block_manager.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include <openssl/evp.h>
#include <xxhash.h>

#include "engine/memory/kv_events.h"
#include "kernels/base/error.h"

namespace minfer {

uint64_t xxh3_block_hash(uint64_t parent, std::span<const TokenId> tokens) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), parent);
}

BlockKey hash_behind(const BlockKey& before, std::span<const std::byte> content) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  const bool is_made = EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) != 0 &&
                       EVP_DigestUpdate(hash.get(), before.data(), before.size()) != 0 &&
                       EVP_DigestUpdate(hash.get(), content.data(), content.size()) != 0 &&
                       EVP_DigestFinal_ex(hash.get(), digest.data(), nullptr) != 0;
  if (!is_made) fail("SHA-256 of a KV block: OpenSSL refuses");
  BlockKey key;
  std::copy_n(digest.begin(), key.size(), key.begin());
  return key;
}

BlockManager::BlockManager(const BlockManagerOptions& options)
    : block_size_(options.block_size),
      sizes_{options.block_size, options.window_block_size, options.window + options.max_tokens_under_way},
      enable_prefix_caching_(options.enable_prefix_caching),
      window_(options.window),
      hash_key_(options.hash_key),
      hash_(options.hash) {
  if (options.num_blocks <= 0) fail("KV cache: {} blocks, expected at least 1", options.num_blocks);
  if (options.block_size <= 0) fail("block_size: {}, expected at least 1", options.block_size);
  if (int64_t{options.num_blocks} * options.block_size > INT32_MAX) {
    fail("KV cache: {} blocks of {} tokens, expected at most {} tokens: slots are 32-bit numbers",
         options.num_blocks, options.block_size, INT32_MAX);
  }
  if (options.window_block_size < 0 ||
      (options.window_block_size > 0 && options.block_size % options.window_block_size != 0)) {
    fail("window_block_size: {}, expected a divisor of block_size = {}", options.window_block_size,
         options.block_size);
  }
  const auto num_blocks = static_cast<size_t>(options.num_blocks);
  blocks_.resize(num_blocks);
  for (BlockId id = 0; id < options.num_blocks; ++id)
    block(id).place = free_.insert(free_.end(), id);
  if (!enable_prefix_caching_) return;
  buckets_.assign(std::bit_ceil(num_blocks), kNone);
  tokens_.resize(num_blocks * static_cast<size_t>(block_size_));
}

void BlockManager::match_prefix(Sequence& sequence, PrefixMatch& match) const {
  match.clear();
  if (!enable_prefix_caching_) return;
  const int32_t max_blocks = (sequence.size() - 1) / block_size_;
  uint64_t parent_content = 0;
  for (int32_t index = 0; index < max_blocks; ++index) {
    const BlockId id = find(sequence, index, parent_content);
    if (id == kNone) break;
    if (block(id).is_of_prompt && match.num_of_prompts == index) ++match.num_of_prompts;
    match.blocks.push_back(id);
    parent_content = block(id).content;
  }
  if (has_window_table()) match_windows(match);
  count_live(match);
}

void BlockManager::shorten(PrefixMatch& match, int32_t num_blocks) const {
  if (has_window_table()) throw std::logic_error("shorten: layers with windows have a table of their own");
  match.blocks.resize(static_cast<size_t>(num_blocks));
  count_live(match);
}

void BlockManager::count_live(PrefixMatch& match) const {
  const auto is_live = [this](BlockId id) { return block(id).ref_count > 0; };
  match.num_live = static_cast<int32_t>(std::ranges::count_if(match.blocks, is_live) +
                                        std::ranges::count_if(match.window_blocks, is_live));
}

void BlockManager::adopt_prefix(Sequence& sequence, const PrefixMatch& match) {
  if (!sequence.blocks.empty()) throw std::logic_error("adopt_prefix: the sequence holds blocks already");
  for (const BlockId id : match.blocks) {
    pin(id);
    sequence.blocks.push_back(id);
  }
  if (has_window_table()) adopt_windows(sequence, match);
  sequence.num_published_blocks = static_cast<int32_t>(match.blocks.size());
  sequence.num_computed = sequence.num_published_blocks * block_size_;
  sequence.num_scheduled = sequence.num_computed;
}

bool BlockManager::allocate(Sequence& sequence, int32_t num_tokens) {
  if (num_covered_tokens(sequence) >= num_tokens) return true;
  if (num_lacking(sequence, num_tokens) > num_free()) return false;
  while (int64_t{block_size_} * std::ssize(sequence.blocks) < num_tokens)
    sequence.blocks.push_back(take_free());
  if (!has_window_table()) return true;
  while (int64_t{sizes_.window_block_size} * std::ssize(sequence.window_blocks) < num_tokens)
    sequence.window_blocks.push_back(take_free());
  return true;
}

int32_t BlockManager::num_lacking(const Sequence& sequence, int32_t num_tokens) const {
  const auto lacking = [num_tokens](const std::vector<BlockId>& blocks, int32_t block_size) {
    const int32_t num_needed = num_tokens / block_size + (num_tokens % block_size != 0);
    return std::max(0, num_needed - static_cast<int32_t>(blocks.size()));
  };
  const int32_t num_blocks = lacking(sequence.blocks, block_size_);
  return has_window_table() ? num_blocks + lacking(sequence.window_blocks, sizes_.window_block_size)
                            : num_blocks;
}

int32_t BlockManager::num_covered_tokens(const Sequence& sequence) const {
  const int32_t num_tokens = static_cast<int32_t>(sequence.blocks.size()) * block_size_;
  if (!has_window_table()) return num_tokens;
  return std::min(num_tokens, static_cast<int32_t>(sequence.window_blocks.size()) * sizes_.window_block_size);
}

void BlockManager::reserve(Sequence& sequence, int32_t num_tokens) const {
  const auto places = [num_tokens](int32_t block_size) {
    return static_cast<size_t>(num_tokens / block_size) + 1;
  };
  sequence.blocks.reserve(places(block_size_));
  sequence.block_hashes.reserve(places(block_size_));
  if (keep_) sequence.block_keys.reserve(places(block_size_) + 1);
  if (has_window_table()) sequence.window_blocks.reserve(places(sizes_.window_block_size));
}

void BlockManager::publish(Sequence& sequence) {
  if (!enable_prefix_caching_) return;
  const int32_t num_full = sequence.num_computed / block_size_;
  for (int32_t index = sequence.num_published_blocks; index < num_full; ++index) {
    publish_block(sequence, index);
    if (has_window_table()) publish_parts(sequence, index);
  }
  sequence.num_published_blocks = num_full;
}

void BlockManager::publish_block(Sequence& sequence, int32_t index) {
  const BlockId id = sequence.blocks[static_cast<size_t>(index)];
  const auto tokens = block_tokens(sequence, index);
  Block& published = block(id);
  published.hash = block_hash(sequence, index);
  published.is_of_prompt = (index + 1) * block_size_ <= sequence.num_prompt_tokens;
  const Block* parent = index == 0 ? nullptr : &block(sequence.blocks[static_cast<size_t>(index) - 1]);
  published.parent_content = parent == nullptr ? 0 : parent->content;
  // Sequences that computed the same tokens at the same time each publish their block, under one content id:
  // whichever of the copies goes first, the others are still found, and so are the blocks that follow them.
  const BlockId twin = find(sequence, index, published.parent_content);
  published.content = twin == kNone ? next_content_++ : block(twin).content;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + static_cast<ptrdiff_t>(id) * block_size_);
  if (index == 0 && !sequence.cache_salt.empty()) salts_[id] = sequence.cache_salt;
  if (keep_) keys_[static_cast<size_t>(id)] = key(sequence, index);
  if (twin != kNone) {
    published.announced = block(twin).announced;
  } else if (events_ != nullptr) {
    announce(id, parent);
  }
  add_to_bucket(id);
}

void BlockManager::add_to_bucket(BlockId id) {
  Block& published = block(id);
  BlockId& head = bucket(published.hash);
  published.hash_prev = kNone;
  published.hash_next = head;
  if (head != kNone) block(head).hash_prev = id;
  head = id;
}

void BlockManager::unpublish(BlockId id) {
  Block& published = block(id);
  if (published.hash_prev != kNone) {
    block(published.hash_prev).hash_next = published.hash_next;
  } else {
    bucket(published.hash) = published.hash_next;
  }
  if (published.hash_next != kNone) block(published.hash_next).hash_prev = published.hash_prev;
  published.hash_prev = published.hash_next = kNone;
  published.content = 0;
  if (std::exchange(published.part, kNone) != kNone) return;
  if (published.parent_content == 0) salts_.erase(id);
  // Only a twin can be announced under the same hash: while there is a twin, the content stays.
  const bool was_announced = std::exchange(published.announced, false);
  if (was_announced && events_ != nullptr && !is_announced(published.hash))
    events_->add_removed(published.hash);
}

/// Tells the mirror of a block with new content, unless the mirror must not know it: the block or one before it is salted,
/// or has a hash that stands for another content in the mirror. `parent`: the block before it; null: there is none.
void BlockManager::announce(BlockId id, const Block* parent) {
  Block& announced = block(id);
  const bool may_know = parent == nullptr ? salt(id).empty() : parent->announced;
  if (!may_know || is_announced(announced.hash)) return;
  announced.announced = true;
  events_->add_stored(parent == nullptr ? std::nullopt : std::optional(parent->hash), announced.hash,
                      cached_tokens(id));
}

bool BlockManager::is_announced(uint64_t hash) const {
  for (BlockId id = bucket(hash); id != kNone; id = block(id).hash_next) {
    if (block(id).hash == hash && block(id).announced) return true;
  }
  return false;
}

void BlockManager::announce_all() {
  events_->add_cleared();
  if (!enable_prefix_caching_) return;
  std::vector<BlockId> published;
  for (BlockId id = 0; id < num_blocks(); ++id) {
    block(id).announced = false;
    if (block(id).content != 0 && block(id).part == kNone) published.push_back(id);
  }
  // A content's id is greater than its predecessor's, so this order puts each block behind its parent.
  const auto content = [this](BlockId id) { return block(id).content; };
  std::ranges::sort(published, {}, content);
  BlockId previous = kNone;
  for (const BlockId id : published) {
    if (previous != kNone && content(previous) == content(id)) {
      block(id).announced = block(previous).announced;  // its twin
    } else {
      const uint64_t parent = block(id).parent_content;
      const auto found = std::ranges::lower_bound(published, parent, {}, content);
      if (parent == 0) {
        announce(id, nullptr);
      } else if (found != published.end() && content(*found) == parent) {  // else a window let it go first
        announce(id, &block(*found));
      }
    }
    previous = id;
  }
}

void BlockManager::release(Sequence& sequence) {
  // Frees from the tail, so that the head of a sequence, which more prompts share, is evicted later.
  if (has_window_table()) release_windows(sequence);
  for (auto i = static_cast<int32_t>(sequence.blocks.size()); i-- > sequence.num_freed_blocks;)
    let_go(sequence.blocks[static_cast<size_t>(i)]);
  sequence.blocks.clear();
  sequence.num_freed_blocks = 0;
  sequence.num_published_blocks = 0;
  sequence.num_scheduled = 0;
  sequence.num_computed = 0;
  sequence.read_end = 0;
}

void BlockManager::release_behind_window(Sequence& sequence) {
  if (window_ == 0) return;
  const int32_t num_behind = std::max(0, sequence.num_computed + 1 - window_);
  if (has_window_table()) return release_windows_behind(sequence, num_behind);
  int32_t end = num_behind / block_size_;
  if (enable_prefix_caching_) end = std::min(end, sequence.num_published_blocks - 1);
  for (int32_t& freed = sequence.num_freed_blocks; freed < end; ++freed)
    let_go(std::exchange(sequence.blocks[static_cast<size_t>(freed)], kFreedBlock));
}

void BlockManager::let_go(BlockId id) {
  Block& released = block(id);
  if (--released.ref_count > 0) return;
  free_.splice(released.content != 0 ? free_.end() : free_.begin(), held_, released.place);
}

void BlockManager::pin(BlockId id) {
  if (block(id).ref_count++ > 0) return;
  held_.splice(held_.end(), free_, block(id).place);
}

BlockId BlockManager::take_free() {
  const BlockId id = free_.front();
  held_.splice(held_.end(), free_, free_.begin());
  if (keep_ && block(id).content != 0) keep_(id, keys_[static_cast<size_t>(id)]);
  if (block(id).content != 0) unpublish(id);
  block(id).ref_count = 1;
  return id;
}

/// The published block with the same content as the index-th block of `sequence`.
BlockId BlockManager::find(Sequence& sequence, int32_t index, uint64_t parent_content) const {
  return find(block_hash(sequence, index), parent_content, sequence.cache_salt,
              block_tokens(sequence, index));
}

BlockId BlockManager::find(uint64_t hash, uint64_t parent_content, std::string_view wanted_salt,
                           std::span<const TokenId> tokens) const {
  for (BlockId id = bucket(hash); id != kNone; id = block(id).hash_next) {
    const Block& candidate = block(id);
    if (candidate.hash == hash && candidate.part == kNone && candidate.parent_content == parent_content &&
        (parent_content != 0 || salt(id) == wanted_salt) && std::ranges::equal(cached_tokens(id), tokens)) {
      return id;
    }
  }
  return kNone;
}

std::string_view BlockManager::salt(BlockId first_block) const {
  const auto found = salts_.find(first_block);
  return found == salts_.end() ? std::string_view() : found->second;
}

uint64_t BlockManager::first_parent_hash(const Sequence& sequence) const {
  const std::string& salt = sequence.cache_salt;
  return salt.empty() ? hash_key_ : XXH3_64bits_withSeed(salt.data(), salt.size(), hash_key_);
}

uint64_t BlockManager::block_hash(Sequence& sequence, int32_t index) const {
  auto& hashes = sequence.block_hashes;
  while (static_cast<int32_t>(hashes.size()) <= index) {
    const uint64_t parent = hashes.empty() ? first_parent_hash(sequence) : hashes.back();
    hashes.push_back(hash_(parent, block_tokens(sequence, static_cast<int32_t>(hashes.size()))));
  }
  return hashes[static_cast<size_t>(index)];
}

void BlockManager::keep_blocks(const BlockKey& root, KeepBlock keep) {
  key_root_ = root;
  keep_ = std::move(keep);
  keys_.resize(blocks_.size());
}

const BlockKey& BlockManager::key(Sequence& sequence, int32_t index) const {
  auto& keys = sequence.block_keys;
  if (keys.empty()) keys.push_back(hash_behind(key_root_, std::as_bytes(std::span(sequence.cache_salt))));
  for (auto next = static_cast<int32_t>(keys.size()) - 1; next <= index; ++next)
    keys.push_back(hash_behind(keys.back(), std::as_bytes(block_tokens(sequence, next))));
  return keys[static_cast<size_t>(index) + 1];
}

void BlockManager::each_published(const KeepBlock& keep) const {
  const auto call = [&](BlockId id) {
    if (block(id).content != 0) keep(id, keys_[static_cast<size_t>(id)]);
  };
  std::ranges::for_each(held_, call);
  std::for_each(free_.rbegin(), free_.rend(), call);
}

std::span<const TokenId> BlockManager::cached_tokens(BlockId id) const {
  return std::span(tokens_).subspan(static_cast<size_t>(id) * block_size_, block_size_);
}

std::span<const TokenId> BlockManager::block_tokens(const Sequence& sequence, int32_t index) const {
  return std::span(sequence.tokens).subspan(static_cast<size_t>(index) * block_size_, block_size_);
}

}  // namespace minfer
