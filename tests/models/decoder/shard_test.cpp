#include "models/decoder/weights/shard.h"

#include <cstring>

#include <gmock/gmock.h>

#include "kernels/base/error.h"
#include "tests/support/paths.h"

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

/// As with Granite 3's 49,155.
TEST(Shard, TheLastRankHasFewerTokensWhereTheyDoNotDivide) {
  int32_t tokens = 0;
  for (int32_t rank = 0; rank < 4; ++rank) {
    const ModelConfig share = shard_config(config_with(8, 4, 1024, 49155), {rank, 4});
    EXPECT_EQ(share.whole_vocab_size(), 49155);
    EXPECT_EQ(share.vocab_share(), 12304);
    EXPECT_EQ(rank * share.vocab_share(), tokens);
    tokens += share.vocab_size;
  }
  EXPECT_EQ(tokens, 49155);
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
  EXPECT_EQ(message(config_with(8, 4, 1024, 48), 4), "nothing");
  EXPECT_EQ(message(config_with(8, 4, 1024, 49), 4), "nothing") << "16 tokens of three ranks, 1 of the last";
  EXPECT_THAT(message(config_with(8, 4, 1024, 47), 4),
              HasSubstr("tokens of the vocabulary of model sample are 47, not a multiple of 4"));
  EXPECT_THAT(message(config_with(12, 3, 1024, 600), 2),
              HasSubstr("3 KV heads of model sample and 2 ranks do not divide each other"));
  ModelConfig hybrid = config_with(8, 4, 1024, 600);
  hybrid.delta_net = {.key_heads = 2, .value_heads = 4, .key_size = 8, .value_size = 8, .conv_size = 4};
  EXPECT_THAT(message(hybrid, 4), HasSubstr("key heads of the delta nets of model sample are 2, not a "
                                            "multiple of 4; numbers of ranks that divide it: 1, 2"));
}

TEST(Shard, RefusesNormsOverAllHeads) {
  ModelConfig config = config_with(8, 4, 1024, 600);
  config.architecture = find_architecture("olmo2");
  EXPECT_EQ(shard_config(config, {}).num_heads, 8) << "alone";
  EXPECT_THAT(
      [&] {
        shard_config(config, {0, 2});
      },
      ThrowsMessage<Error>(HasSubstr("tensor-parallel-size: 2, expected 1 for model sample: architecture "
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

/// The shares of a tensor joined again: by rows, or row by row.
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
    // With two KV heads, ranks 0 and 1 hold the first, ranks 2 and 3 the second.
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

TEST(Shard, GivesEachHeadItsNorms) {
  const auto model = open_model(source_path("tests/golden/command-r-plus.gguf"));
  std::vector<std::unique_ptr<ModelShard>> shards;
  for (int32_t rank = 0; rank < 2; ++rank)
    shards.push_back(std::make_unique<ModelShard>(*model, Rank{rank, 2}));
  for (const char* name : {"blk.0.attn_q_norm.weight", "blk.1.attn_k_norm.weight"})
    EXPECT_EQ(together(shards, name, true), bytes_of(*model->find_tensor(name))) << name;
}

/// Bytes of a matrix's rows, of a vector's elements, or of columns of each row.
std::vector<std::byte> rows_of(const HostTensor& tensor, int64_t first, int64_t count) {
  const bool is_vector = tensor.rows == 1;
  const std::vector<std::byte> all = bytes_of(tensor);
  const size_t unit = is_vector ? row_bytes(tensor.dtype, 1) : row_bytes(tensor.dtype, tensor.cols);
  const auto begin = all.begin() + static_cast<ptrdiff_t>(unit) * first;
  return {begin, begin + static_cast<ptrdiff_t>(unit) * count};
}
std::vector<std::byte> columns_of(const HostTensor& tensor, int64_t first, int64_t count) {
  std::vector<std::byte> bytes;
  for (int64_t row = 0; row < tensor.rows; ++row) {
    const std::byte* begin = tensor.row(0, row) + row_bytes(tensor.dtype, first);
    bytes.insert(bytes.end(), begin, begin + row_bytes(tensor.dtype, count));
  }
  return bytes;
}

/// Heads of delta nets, head by head. The value heads of a key head are side by side (two, qwen3next) or in turn (three, qwen35).
TEST(Shard, GivesValueHeadsOfDeltaNetsToTheRankOfTheirKeyHead) {
  for (const char* name : {"qwen3next", "qwen35"}) {
    const auto model = open_model(source_path("tests/golden/") + name + ".gguf");
    const DeltaNetShape whole = model->config().delta_net;
    for (int32_t rank = 0; rank < 2; ++rank) {
      ModelShard shard(*model, {rank, 2});
      const DeltaNetShape share = shard.config().delta_net;
      ASSERT_EQ(share.key_heads, whole.key_heads / 2);
      ASSERT_EQ(share.value_heads, whole.value_heads / 2);
      const auto expect_rows = [&](const char* tensor, int64_t own, int64_t of_model, int64_t count) {
        const std::string full = std::string("blk.0.") + tensor;
        EXPECT_EQ(rows_of(*shard.find_tensor(full), own, count),
                  rows_of(*model->find_tensor(full), of_model, count))
            << name << " " << full << " " << rank;
      };
      const int32_t first_key = rank * share.key_heads;
      for (int32_t key = 0; key < share.key_heads; ++key) {
        for (const char* tensor : {"attn_qkv.weight", "ssm_conv1d.weight"}) {
          expect_rows(tensor, key * share.key_size, (first_key + key) * whole.key_size, share.key_size);
          expect_rows(tensor, share.key_columns() + key * share.key_size,
                      whole.key_columns() + (first_key + key) * whole.key_size, share.key_size);
        }
      }
      for (int32_t head = 0; head < share.value_heads; ++head) {
        const int32_t key = share.key_head_of(head);
        const int32_t of_model = whole.in_turn ? head / share.key_heads * whole.key_heads + first_key + key
                                               : rank * share.value_heads + head;
        ASSERT_EQ(whole.key_head_of(of_model), first_key + key);
        const int64_t own_row = int64_t{head} * share.value_size, row = int64_t{of_model} * whole.value_size;
        expect_rows("attn_gate.weight", own_row, row, share.value_size);
        for (const char* tensor : {"attn_qkv.weight", "ssm_conv1d.weight"})
          expect_rows(tensor, 2 * share.key_columns() + own_row, 2 * whole.key_columns() + row,
                      share.value_size);
        for (const char* tensor : {"ssm_a", "ssm_dt.bias"})
          expect_rows(tensor, head, of_model, 1);
        if (whole.in_turn) {
          expect_rows("ssm_alpha.weight", head, of_model, 1);
          expect_rows("ssm_beta.weight", head, of_model, 1);
        }
        EXPECT_EQ(columns_of(*shard.find_tensor("blk.0.ssm_out.weight"), own_row, share.value_size),
                  columns_of(*model->find_tensor("blk.0.ssm_out.weight"), row, share.value_size));
      }
      if (!whole.in_turn) {  // betas and alphas of a key head's values are contiguous
        expect_rows("ssm_ba.weight", 0, 2 * rank * share.value_heads, 2 * share.value_heads);
      }
      shard.release_data();
      EXPECT_EQ(shard.find_tensor("blk.0.attn_qkv.weight")->data, nullptr) << "it was a copy";
      EXPECT_NE(shard.find_tensor("blk.0.attn_norm.weight")->data, nullptr);
      const ModelShard shapes(*model, {rank, 2}, ModelShard::Contents::shapes);
      for (const HostTensor& tensor : shapes.tensors()) {
        EXPECT_EQ(tensor.data, nullptr);
        EXPECT_EQ(tensor.bytes(), shard.find_tensor(tensor.name)->bytes()) << tensor.name;
      }
    }
  }
}

/// A model with delta nets of this shape. It has one tensor, without data.
class OneTensor : public ModelSource {
 public:
  OneTensor(HostTensor tensor, const DeltaNetShape& shape)
      : ModelSource("sample", config_with(8, 4, 1024, 600)) {
    config_.delta_net = shape;
    add_tensor(std::move(tensor));
  }
  std::unique_ptr<Tokenizer> make_tokenizer() const override { return nullptr; }
};

TEST(Shard, RefusesColumnsThatAreNoWholeBlocks) {
  const auto model = make_synthetic_model("synthetic:tiny:q4_k");
  EXPECT_THAT(
      [&] {
        ModelShard(*model, {0, 2});
      },
      ThrowsMessage<FileError>(
          HasSubstr("tensor blk.0.attn_output.weight: 256 columns among 2 ranks are 128 each, "
                    "expected whole blocks of 256 elements of q4_k")));
  const OneTensor in_turn(
      {.name = "blk.0.ssm_out.weight", .dtype = DType::q8_0, .rows = 32, .cols = 96},
      {.key_heads = 2, .value_heads = 6, .key_size = 16, .value_size = 16, .conv_size = 4, .in_turn = true});
  EXPECT_THAT(
      [&] {
        ModelShard(in_turn, {0, 2});
      },
      ThrowsMessage<FileError>(
          HasSubstr("tensor blk.0.ssm_out.weight: 96 columns among 2 ranks are 48 each in pieces of 16, "
                    "expected whole blocks of 32 elements of q8_0")));
}

}  // namespace
}  // namespace minfer
