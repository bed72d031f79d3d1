// The invariants of BlockManager and StateCopies, as tests verify them after each operation.

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/memory/block_manager.h"
#include "engine/memory/state_copies.h"

namespace minfer {
namespace {

template <class... Args>
void verify(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) throw std::logic_error("BlockManager: " + fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

void BlockManager::check(std::span<const Sequence* const> running) const {
  check_references(running);
  check_free_list();
  if (enable_prefix_caching_) check_published();
}

/// Each block is held exactly as often as block tables name it, and published blocks hold the tokens of
/// their sequences.
void BlockManager::check_references(std::span<const Sequence* const> running) const {
  std::vector<int32_t> references(blocks_.size(), 0);
  for (const Sequence* sequence : running) {
    const auto num_blocks = static_cast<int32_t>(sequence->blocks.size());
    verify(num_covered_tokens(*sequence) >= sequence->num_scheduled, "{}: {} blocks for {} scheduled tokens",
           sequence->id, num_blocks, sequence->num_scheduled);
    verify(sequence->num_published_blocks * block_size_ <= sequence->num_computed,
           "{}: {} blocks published with {} tokens computed", sequence->id, sequence->num_published_blocks,
           sequence->num_computed);
    verify(sequence->num_freed_blocks == 0 || (window_ > 0 && !has_window_table()),
           "{}: {} blocks freed that are read", sequence->id, sequence->num_freed_blocks);
    check_window_blocks(*sequence, references);
    for (int32_t index = 0; index < num_blocks; ++index) {
      const BlockId id = sequence->blocks[static_cast<size_t>(index)];
      const bool is_freed = index < sequence->num_freed_blocks;
      verify(is_freed == (id == kFreedBlock), "{}: place {} is {}freed", sequence->id, index,
             is_freed ? "not " : "");
      if (is_freed) continue;
      ++references[static_cast<size_t>(id)];
      const bool published = index < sequence->num_published_blocks;
      verify(published == (block(id).content != 0), "{}: block {} is {}published", sequence->id, id,
             published ? "not " : "");
      verify(!published || std::ranges::equal(cached_tokens(id), block_tokens(*sequence, index)),
             "{}: block {} is published with other tokens", sequence->id, id);
    }
  }
  for (BlockId id = 0; id < num_blocks(); ++id) {
    const int32_t found = block(id).ref_count, expected = references[static_cast<size_t>(id)];
    verify(found == expected, "block {}: ref_count {}, but held {} times", id, found, expected);
  }
}

/// The table of layers with windows has all blocks that the next token reads. They are published like those of the other table.
void BlockManager::check_window_blocks(const Sequence& sequence, std::vector<int32_t>& references) const {
  const auto num_blocks = static_cast<int32_t>(sequence.window_blocks.size());
  if (!has_window_table()) {
    return verify(num_blocks == 0, "{}: {} blocks of windows without a table of them", sequence.id,
                  num_blocks);
  }
  verify(num_blocks * sizes_.window_block_size >= sequence.num_scheduled,
         "{}: {} blocks of windows for {} scheduled tokens", sequence.id, num_blocks, sequence.num_scheduled);
  const int32_t first_read = std::max(0, sequence.num_computed + 1 - window_) / sizes_.window_block_size;
  verify(sequence.num_freed_window_blocks <= first_read, "{}: {} blocks of windows freed, but {} is read",
         sequence.id, sequence.num_freed_window_blocks, first_read);
  for (int32_t place = 0; place < num_blocks; ++place) {
    const BlockId id = sequence.window_blocks[static_cast<size_t>(place)];
    const bool is_freed = place < sequence.num_freed_window_blocks;
    verify(is_freed == (id == kFreedBlock), "{}: place {} of windows is {}freed", sequence.id, place,
           is_freed ? "not " : "");
    if (is_freed) continue;
    ++references[static_cast<size_t>(id)];
    const int32_t index = place / num_parts();
    const bool published = index < sequence.num_published_blocks;
    verify(published == (block(id).content != 0), "{}: block {} of windows is {}published", sequence.id, id,
           published ? "not " : "");
    if (!published) continue;
    const uint64_t content = block(sequence.blocks[static_cast<size_t>(index)]).content;
    verify(block(id).content == content && block(id).part == place % num_parts(),
           "{}: block {} of windows is published as part {} of other tokens", sequence.id, id,
           block(id).part);
  }
}

/// The free list has exactly the blocks that no sequence holds: free + live = total.
void BlockManager::check_free_list() const {
  for (auto place = free_.begin(); place != free_.end(); ++place) {
    const Block& each = block(*place);
    verify(each.ref_count == 0, "block {}: on the free list with ref_count {}", *place, each.ref_count);
    verify(each.place == place, "block {}: its place is not the one on the free list", *place);
  }
  const auto num_live = static_cast<int32_t>(
      std::ranges::count_if(blocks_, [](const Block& each) { return each.ref_count > 0; }));
  verify(num_free() + num_live == num_blocks(), "{} free + {} live of {} blocks", num_free(), num_live,
         num_blocks());
}

int32_t BlockManager::num_cached() const {
  return static_cast<int32_t>(
      std::ranges::count_if(free_, [this](BlockId id) { return block(id).content != 0; }));
}

/// Published blocks can be found, one content id stands for one content, and no predecessor is missing.
void BlockManager::check_published() const {
  std::map<std::tuple<uint64_t, std::string_view, std::vector<TokenId>>, uint64_t> content_of;
  std::map<uint64_t, bool> is_announced = {{0, true}};  // by content
  std::map<uint64_t, uint64_t> announced_content;       // by hash
  std::set<uint64_t> contents = {0};
  size_t num_published = 0, num_salted = 0;
  for (BlockId id = 0; id < num_blocks(); ++id) {
    const Block& each = block(id);
    if (each.content == 0) continue;
    ++num_published;
    if (each.part != kNone) {
      verify(has_window_table() && each.part < num_parts() && !each.announced,
             "block {}: published as part {} of windows", id, each.part);
      verify(find_part(each.content, each.part) != kNone, "block {}: published but not found", id);
      continue;
    }
    if (!salt(id).empty()) {
      ++num_salted;
      verify(each.parent_content == 0, "block {}: not the first of its prefix, but has a salt", id);
    }
    const auto tokens = cached_tokens(id);
    verify(find(each.hash, each.parent_content, salt(id), tokens) != kNone,
           "block {}: published but not found", id);
    const auto [known, is_new] = content_of.emplace(
        std::tuple(each.parent_content, salt(id), std::vector(tokens.begin(), tokens.end())), each.content);
    verify(known->second == each.content, "block {}: content id {}, but {} for the same tokens", id,
           each.content, known->second);
    verify(contents.insert(each.content).second == is_new, "block {}: content id {} means two contents", id,
           each.content);
    verify(is_announced.emplace(each.content, each.announced).first->second == each.announced,
           "block {}: of two copies one is announced", id);
    verify(
        !each.announced || announced_content.emplace(each.hash, each.content).first->second == each.content,
        "block {}: its hash is announced for another content", id);
    verify(!each.announced || salt(id).empty(), "block {}: announced, but has a salt", id);
  }
  for (BlockId id = 0; id < num_blocks(); ++id) {
    if (block(id).part != kNone) continue;
    const bool has_predecessor = contents.contains(block(id).parent_content);
    verify(block(id).content == 0 || has_predecessor || (window_ > 0 && !has_window_table()),
           "block {}: its predecessor's content was evicted first", id);
    verify(!block(id).announced || !has_predecessor || is_announced.at(block(id).parent_content),
           "block {}: announced, but its predecessor is not", id);
  }
  verify(num_salted == salts_.size(), "{} salts of {} blocks", salts_.size(), num_salted);
  size_t num_linked = 0;
  for (const BlockId head : buckets_) {
    BlockId previous = kNone;
    for (BlockId id = head; id != kNone; previous = id, id = block(id).hash_next) {
      verify(++num_linked <= num_published, "a hash chain has a cycle or holds an unpublished block");
      verify(block(id).hash_prev == previous, "block {}: hash_prev is {}, not {}", id, block(id).hash_prev,
             previous);
    }
  }
  verify(num_linked == num_published, "{} blocks in hash chains, {} published", num_linked, num_published);
}

void StateCopies::check() const {
  const auto hold = [](bool holds, const char* what) {
    if (!holds) throw std::logic_error(what);
  };
  std::multiset<int32_t> seen(free_.begin(), free_.end());
  for (const Writing& each : writing_)
    seen.insert(each.slot);
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    const auto found = by_content_.find(kept->content);
    hold(found != by_content_.end() && found->second == kept, "state copies: one that is kept is not found");
    seen.insert(kept->slot);
  }
  hold(by_content_.size() == kept_.size(), "state copies: more are found than kept");
  hold(std::ssize(seen) == num_slots() && std::ranges::adjacent_find(seen) == seen.end(),
       "state copies: a slot is lost, or is two things");
}

}  // namespace minfer
