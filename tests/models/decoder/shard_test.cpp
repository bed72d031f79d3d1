#include "models/decoder/shard.h"

#include <cstring>

#include <gmock/gmock.h>

#include "kernels/error.h"

namespace minfer {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

ModelConfig config_with(int32_t heads, int32_t kv_heads, int32_t ffn, int32_t vocab) {
  ModelConfig config;
  config.name = "sample";
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_size = 64;
  config.ffn_size = ffn;
  config.vocab_size = vocab;
  config.hidden_size = 512;
  return config;
}

TEST(Shard, DividesHeadsFeedForwardAndVocabulary) {
  const ModelConfig share = shard_config(config_with(8, 4, 1024, 600), {1, 2});
  EXPECT_EQ(share.num_heads, 4);
  EXPECT_EQ(share.num_kv_heads, 2);
  EXPECT_EQ(share.ffn_size, 512);
  EXPECT_EQ(share.vocab_size, 300);
  EXPECT_EQ(share.whole_vocab_size(), 600);
  EXPECT_EQ(share.hidden_size, 512);
  EXPECT_EQ(shard_config(config_with(8, 2, 1024, 600), {3, 4}).num_kv_heads, 1) << "two hold the same one";
}

TEST(Shard, NamesWhatDoesNotDivideAndWhatWould) {
  const auto message = [](const ModelConfig& config, int32_t ranks) {
    try {
      shard_config(config, {0, ranks});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(message(config_with(8, 4, 1024, 600), 3),
            "tensor-parallel-size: attention heads of model sample are 8, not a multiple of 3; numbers of "
            "ranks that divide it: 1, 2, 4, 8");
  EXPECT_THAT(message(config_with(8, 4, 1022, 600), 4),
              HasSubstr("columns of the feed-forward layers of model sample are 1022"));
  EXPECT_THAT(message(config_with(8, 4, 1024, 601), 2),
              HasSubstr("tokens of the vocabulary of model sample are 601"));
  EXPECT_THAT(message(config_with(12, 3, 1024, 600), 2),
              HasSubstr("3 KV heads of model sample and 2 ranks do not divide each other"));
}

TEST(Shard, RefusesNormsOverAllHeads) {
  ModelConfig config = config_with(8, 4, 1024, 600);
  config.architecture = find_architecture("olmo2");
  EXPECT_EQ(shard_config(config, {}).num_heads, 8) << "alone";
  EXPECT_THAT(
      [&] {
        shard_config(config, {0, 2});
      },
      ThrowsMessage<Error>(HasSubstr("tensor-parallel-size: 2, expected 1 of model sample: architecture "
                                     "olmo2 normalises queries and keys over all heads")));
}

/// Bytes of a tensor's rows, one behind the other.
std::vector<std::byte> bytes_of(const HostTensor& tensor) {
  std::vector<std::byte> bytes;
  for (int64_t matrix = 0; matrix < tensor.count; ++matrix) {
    for (int64_t row = 0; row < tensor.rows; ++row) {
      const std::byte* begin = tensor.row(matrix, row);
      bytes.insert(bytes.end(), begin, begin + row_bytes(tensor.dtype, tensor.cols));
    }
  }
  return bytes;
}

/// The shares of a tensor put together: by rows, or row by row.
std::vector<std::byte> together(const std::vector<std::unique_ptr<ModelShard>>& shards,
                                const std::string& name, bool by_rows) {
  std::vector<std::byte> bytes;
  const HostTensor& first = *shards.front()->find_tensor(name);
  for (int64_t row = 0; row < (by_rows ? 1 : first.rows); ++row) {
    for (const auto& shard : shards) {
      const HostTensor& tensor = *shard->find_tensor(name);
      const std::vector<std::byte> part = bytes_of(tensor);
      const size_t size = by_rows ? part.size() : row_bytes(tensor.dtype, tensor.cols);
      const auto begin = part.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(row) * size);
      bytes.insert(bytes.end(), begin, begin + static_cast<ptrdiff_t>(size));
    }
  }
  return bytes;
}

TEST(Shard, SharesTogetherAreTheModel) {
  for (const char* type : {"f32", "bf16", "q8_0", "q4_0"}) {
    const auto model = make_synthetic_model(std::string("synthetic:tiny:") + type);
    std::vector<std::unique_ptr<ModelShard>> shards;
    for (int32_t rank = 0; rank < 4; ++rank)
      shards.push_back(std::make_unique<ModelShard>(*model, Rank{rank, 4}));
    for (const char* name : {"token_embd.weight", "output.weight", "blk.0.attn_q.weight",
                             "blk.1.ffn_gate.weight", "blk.0.ffn_up.weight"})
      EXPECT_EQ(together(shards, name, true), bytes_of(*model->find_tensor(name))) << type << " " << name;
    for (const char* name : {"blk.0.attn_output.weight", "blk.1.ffn_down.weight"})
      EXPECT_EQ(together(shards, name, false), bytes_of(*model->find_tensor(name))) << type << " " << name;
    // Of two KV heads ranks 0 and 1 hold the first, 2 and 3 the second.
    const std::vector<std::byte> k = bytes_of(*model->find_tensor("blk.0.attn_k.weight"));
    for (size_t rank = 0; rank < 4; ++rank) {
      const std::vector<std::byte> share = bytes_of(*shards[rank]->find_tensor("blk.0.attn_k.weight"));
      ASSERT_EQ(share.size(), k.size() / 2);
      EXPECT_EQ(std::memcmp(share.data(), k.data() + rank / 2 * share.size(), share.size()), 0) << rank;
      EXPECT_EQ(bytes_of(*shards[rank]->find_tensor("blk.0.attn_norm.weight")),
                bytes_of(*model->find_tensor("blk.0.attn_norm.weight")));
    }
  }
}

TEST(Shard, RefusesColumnsThatAreNoWholeBlocks) {
  const auto model = make_synthetic_model("synthetic:tiny:q4_k");
  EXPECT_THAT(
      [&] {
        ModelShard(*model, {0, 2});
      },
      ThrowsMessage<FileError>(
          HasSubstr("tensor blk.0.attn_output.weight: 256 columns among 2 ranks are 128 each, "
                    "expected whole blocks of 256 elements of q4_k")));
}

}  // namespace
}  // namespace minfer
