#pragma once

#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "engine/memory/kv_events.h"

namespace minfer::test {

/// What a subscriber knows of a prefix cache: by hash, the tokens of a block and of all blocks before it. Each event must fit.
class KvMirror {
 public:
  void apply(const KvEventBatch& batch) {
    size_t next = 0;
    const TokenId* tokens = batch.tokens.data();
    for (const KvEventBatch::Event& event : batch.events) {
      if (event.kind == KvEventBatch::Kind::cleared) prefixes_.clear();
      std::vector<TokenId> prefix;
      if (event.parent) {
        ASSERT_TRUE(prefixes_.contains(*event.parent)) << "stored behind a block that is not there";
        prefix = prefixes_[*event.parent];
      }
      for (int32_t i = 0; i < event.num_blocks; ++i) {
        const uint64_t hash = batch.hashes[next++];
        if (event.kind == KvEventBatch::Kind::removed) {
          ASSERT_EQ(prefixes_.erase(hash), 1u) << "removed, but not stored";
          continue;
        }
        prefix.insert(prefix.end(), tokens, tokens + batch.block_size);
        tokens += batch.block_size;
        ASSERT_TRUE(prefixes_.emplace(hash, prefix).second) << "stored twice";
      }
    }
    ASSERT_EQ(next, batch.hashes.size());
    ASSERT_EQ(tokens, batch.tokens.data() + batch.tokens.size());
  }

  std::set<std::vector<TokenId>> prefixes() const {
    std::set<std::vector<TokenId>> all;
    for (const auto& [hash, prefix] : prefixes_)
      all.insert(prefix);
    return all;
  }
  size_t size() const { return prefixes_.size(); }

 private:
  std::map<uint64_t, std::vector<TokenId>> prefixes_;
};

}  // namespace minfer::test
