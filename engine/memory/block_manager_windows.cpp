// BlockManager's functions for layers with windows that have a block table of their own.

#include <algorithm>
#include <utility>

#include <xxhash.h>

#include "engine/memory/block_manager.h"

namespace minfer {
namespace {

/// The hash of a block of layers with windows.
uint64_t part_hash(uint64_t content, int32_t part) {
  return XXH3_64bits_withSeed(&content, sizeof(content), static_cast<uint64_t>(part));
}

}  // namespace

/// Cuts a match to the longest prefix behind which the next token finds everything it reads in layers with windows. It goes
/// backwards from the match's end, so that it looks at no place twice: where a block is missing, the prefix must end before it.
void BlockManager::match_windows(PrefixMatch& match) const {
  const auto first_read = [this](int32_t num_tokens) {
    return std::max(0, num_tokens + 1 - window_) / sizes_.window_block_size;
  };
  auto num_blocks = static_cast<int32_t>(match.blocks.size());
  int32_t next = num_blocks * num_parts();  // places from here to the end are found
  while (next > first_read(num_blocks * block_size_)) {
    --next;
    const int32_t index = next / num_parts();
    const uint64_t content = block(match.blocks[static_cast<size_t>(index)]).content;
    const BlockId id = find_part(content, next % num_parts());
    if (id != kNone) {
      match.window_blocks.push_back(id);
      continue;
    }
    num_blocks = index;
    next = num_blocks * num_parts();
    match.window_blocks.clear();
  }
  match.blocks.resize(static_cast<size_t>(num_blocks));
  std::ranges::reverse(match.window_blocks);
  match.num_before_window = next;
}

void BlockManager::adopt_windows(Sequence& sequence, const PrefixMatch& match) {
  sequence.window_blocks.assign(static_cast<size_t>(match.num_before_window), kFreedBlock);
  sequence.num_freed_window_blocks = match.num_before_window;
  for (const BlockId id : match.window_blocks) {
    pin(id);
    sequence.window_blocks.push_back(id);
  }
}

BlockId BlockManager::find_part(uint64_t content, int32_t part) const {
  for (BlockId id = bucket(part_hash(content, part)); id != kNone; id = block(id).hash_next) {
    if (block(id).content == content && block(id).part == part) return id;
  }
  return kNone;
}

/// Publishes the blocks of layers with windows that hold the tokens of the index-th block of the others, which is published.
void BlockManager::publish_parts(Sequence& sequence, int32_t index) {
  const uint64_t content = block(sequence.blocks[static_cast<size_t>(index)]).content;
  for (int32_t part = 0; part < num_parts(); ++part) {
    const BlockId id = sequence.window_blocks[static_cast<size_t>(index * num_parts() + part)];
    if (id == kFreedBlock) continue;
    Block& published = block(id);
    published.hash = part_hash(content, part);
    published.content = content;
    published.part = part;
    add_to_bucket(id);
  }
}

/// Freed in front of the other table's blocks: they serve only prefixes that end as this one does.
void BlockManager::release_windows(Sequence& sequence) {
  for (auto i = static_cast<int32_t>(sequence.window_blocks.size()); i-- > sequence.num_freed_window_blocks;)
    let_go(sequence.window_blocks[static_cast<size_t>(i)]);
  sequence.window_blocks.clear();
  sequence.num_freed_window_blocks = 0;
}

void BlockManager::release_windows_behind(Sequence& sequence, int32_t num_behind) {
  const int32_t end = num_behind / sizes_.window_block_size;
  for (int32_t& freed = sequence.num_freed_window_blocks; freed < end; ++freed)
    let_go(std::exchange(sequence.window_blocks[static_cast<size_t>(freed)], kFreedBlock));
}

}  // namespace minfer
