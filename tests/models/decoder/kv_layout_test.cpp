// How layers with windows and others share KV blocks.
#include "models/decoder/memory/kv_layout.h"

#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "models/decoder/memory/kv_cache.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {
namespace {

constexpr int32_t kBlockSize = 16;

/// Every `period`-th layer reads everything, the others have the window.
ModelConfig layers_with_windows(int32_t num_layers, int32_t period, int32_t window, int32_t kv_heads,
                                int32_t head_size, std::optional<LayerHeads> of_windows = {}) {
  ModelConfig config;
  config.num_layers = num_layers;
  config.num_kv_heads = kv_heads;
  config.head_size = head_size;
  for (int32_t i = 1; i <= num_layers; ++i)
    config.layers.push_back(i % period == 0 ? LayerConfig{}
                                            : LayerConfig{.window = window, .heads = of_windows});
  return config;
}

/// The KV cache of a sequence in bf16, in tenths of GiB.
int64_t tenths(const ModelConfig& config, const KvLayout& layout, int32_t num_tokens) {
  const size_t bytes = KvCache::sequence_bytes(config, layout, DType::bf16, kBlockSize, num_tokens);
  return std::lround(10.0 * static_cast<double>(bytes) / (1 << 30));
}

TEST(KvLayout, WhatModelsTakeIsWhatTheReadmeSays) {
  const auto expect = [](const char* model, int32_t num_tokens, int64_t one, int64_t two, int32_t parts) {
    const ModelConfig config = synthetic_config(model);
    const KvLayout layout = KvLayout::of(config, num_tokens, kBlockSize);
    EXPECT_TRUE(layout.has_window_table);
    EXPECT_EQ(layout.parts, parts) << model;
    EXPECT_EQ(tenths(config, KvLayout{}, num_tokens), one) << model;
    EXPECT_EQ(tenths(config, layout, num_tokens), two) << model;
  };
  expect("gemma-3-12b", 32768, 120, 23, 5);
  expect("gemma-3-12b", 131072, 480, 83, 5);
  expect("gemma-4-31b", 32768, 275, 33, 10);
  expect("gemma-4-31b", 262144, 2200, 208, 10);
  expect("command-r7b", 131072, 160, 44, 3);
  expect("llama-4-scout", 131072, 240, 71, 3);
  expect("gemma-2-9b", 8192, 26, 20, 1);
  expect("gpt-oss-20b", 131072, 60, 30, 1);
}

TEST(KvLayout, LayersOfOneKindShareATable) {
  EXPECT_EQ(KvLayout::of(layers_with_windows(4, 1, 0, 1, 8), 4096, kBlockSize), KvLayout{});
  EXPECT_EQ(KvLayout::of(layers_with_windows(4, 100, 128, 1, 8), 4096, kBlockSize),
            (KvLayout{.window = 128}));
  const ModelConfig both = layers_with_windows(4, 2, 128, 1, 8);
  EXPECT_EQ(KvLayout::of(both, 128, kBlockSize), KvLayout{}) << "a window that holds all";
  EXPECT_EQ(KvLayout::of(both, 150, kBlockSize), KvLayout{}) << "little would be saved";
  EXPECT_TRUE(KvLayout::of(both, 4096, kBlockSize).has_window_table);
}

TEST(KvLayout, TakesAsManyPartsAsPay) {
  const auto parts = [](int32_t num_layers, int32_t period) {
    return KvLayout::of(layers_with_windows(num_layers, period, 1024, 1, 8), 131072, kBlockSize).parts;
  };
  EXPECT_EQ(parts(24, 2), 1);
  EXPECT_EQ(parts(32, 4), 3);
  EXPECT_EQ(parts(48, 6), 5);
  EXPECT_EQ(parts(62, 6), 6) << "52 layers with windows share 10 arrays";
}

TEST(KvLayout, PartsOfEachKindHaveTheirBytes) {
  const auto layout = [](int32_t full_heads, const LayerHeads& of_windows) {
    return KvLayout::of(layers_with_windows(60, 6, 1024, full_heads, 8, of_windows), 131072, kBlockSize);
  };
  EXPECT_EQ(layout(4, {8, 8}),
            (KvLayout{.parts = 10, .window_parts = 5, .window = 1024, .has_window_table = true}));
  EXPECT_EQ(layout(8, {2, 16}),
            (KvLayout{.parts = 3, .window_parts = 6, .window = 1024, .has_window_table = true}));
  EXPECT_EQ(layout(3, {2, 8}),
            (KvLayout{.parts = 4, .window_parts = 6, .window = 1024, .has_window_table = true}));
  EXPECT_EQ(layout(4, {4, 8}).parts, 5) << "alike in bytes";
}

TEST(KvLayout, LayersOfOneKindThatDifferShareATable) {
  ModelConfig config = layers_with_windows(60, 6, 1024, 4, 8);
  EXPECT_TRUE(KvLayout::of(config, 131072, kBlockSize).has_window_table);
  config.layers[0].heads = LayerHeads{2, 8};
  EXPECT_EQ(KvLayout::of(config, 131072, kBlockSize), KvLayout{});
  config.layers[0].heads = LayerHeads{2, 16};
  EXPECT_TRUE(KvLayout::of(config, 131072, kBlockSize).has_window_table) << "alike in bytes";
  config.layers[5].heads = LayerHeads{2, 8};
  EXPECT_EQ(KvLayout::of(config, 131072, kBlockSize), KvLayout{});
}

TEST(KvLayout, ACacheRefusesPartsThatAreNotAsLarge) {
  const ModelConfig config = layers_with_windows(4, 2, 64, 2, 8, LayerHeads{4, 8});
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  const KvLayout alike{.parts = 1, .window_parts = 1, .window = 64, .has_window_table = true};
  EXPECT_THROW(KvCache(*backend, config, alike, DType::bf16, 5, kBlockSize), Error);
}

TEST(KvLayout, BlocksAndTokensAgree) {
  std::mt19937 random(1);
  for (int32_t i = 0; i < 200; ++i) {
    const auto pick = [&](uint32_t most) { return static_cast<int32_t>(1 + random() % most); };
    const int32_t part = pick(8);
    const KvBlockSizes sizes{part * pick(5), pick(3) == 1 ? 0 : part, pick(100)};
    for (int64_t num_blocks = 0; num_blocks < 60; ++num_blocks) {
      const int64_t most = sizes.most_tokens(num_blocks);
      EXPECT_LE(sizes.blocks_for(most), num_blocks);
      EXPECT_GT(sizes.blocks_for(most + 1), num_blocks);
    }
  }
}

/// A block has the same memory whichever kind it serves, and no other block shares it.
void expect_same_memory(const ModelConfig& config, int32_t first_full) {
  constexpr int32_t kNumBlocks = 5;
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  const KvLayout layout = KvLayout::of(config, 4096, kBlockSize);
  ASSERT_TRUE(layout.has_window_table);
  const KvCache kv(*backend, config, layout, DType::bf16, kNumBlocks, kBlockSize);
  EXPECT_EQ(kv.bytes(), kNumBlocks * KvCache::block_bytes(config, layout, DType::bf16, kBlockSize));
  std::map<size_t, int32_t> owner;  // of each 16 bytes of memory
  const auto* const memory = static_cast<const std::byte*>(kv.layer(first_full).k);
  std::set<std::pair<int32_t, size_t>> written;  // by one layer
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const KvLayer& layer = kv.layer(i);
    const bool is_windowed = layout.is_windowed(config.layer(i));
    const size_t part_bytes = row_bytes(DType::bf16, int64_t{kBlockSize} * config.kv_size(i));
    const int32_t distance = is_windowed ? layout.window_parts : layout.parts;
    for (int32_t block = 0; block < kNumBlocks; ++block) {
      for (int32_t part = 0; part < (is_windowed ? 1 : layout.parts); ++part) {
        const int32_t entry = block * distance + part;
        EXPECT_LT(entry, layer.num_blocks);
        for (const void* const half : {layer.k, layer.v}) {
          const size_t at = static_cast<size_t>(static_cast<const std::byte*>(half) - memory) +
                            static_cast<size_t>(entry) * part_bytes;
          EXPECT_LE(at + part_bytes, kv.bytes());
          for (size_t byte = at; byte < at + part_bytes; byte += 16) {
            EXPECT_EQ(owner.emplace(byte, block).first->second, block) << "byte " << byte;
            EXPECT_TRUE(written.emplace(is_windowed ? 1 : 0, byte).second)
                << "two of a kind have byte " << byte;
          }
        }
      }
    }
  }
}

TEST(KvLayout, ABlockIsTheSameMemoryForBothKinds) {
  for (const auto& [num_layers, period] : {std::pair{24, 2}, {32, 4}, {34, 6}, {8, 2}})
    expect_same_memory(layers_with_windows(num_layers, period, 64, 2, 8), period - 1);
}

TEST(KvLayout, ABlockIsTheSameMemoryForKindsOfOtherBytes) {
  for (const LayerHeads& of_windows :
       {LayerHeads{4, 8}, LayerHeads{1, 8}, LayerHeads{3, 8}, LayerHeads{8, 4}}) {
    for (const auto& [num_layers, period] : {std::pair{24, 2}, {32, 4}, {34, 6}})
      expect_same_memory(layers_with_windows(num_layers, period, 64, 2, 8, of_windows), period - 1);
  }
}

}  // namespace
}  // namespace minfer
