// Indexers of latent attention in files: keys, tensors, memory, layers that take another layer's choice, and refusals.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/evaluator.h"
#include "kernels/work.h"
#include "models/decoder/config/config_facts.h"
#include "models/decoder/decoder.h"
#include "models/decoder/weights/shard.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/models/recording_backend.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::ModelParts;
using test::tiny_model;
using ::testing::HasSubstr;

ModelConfig indexer_config_of(const ModelParts& model) {
  const std::vector<std::byte> bytes = model.build();
  return read_config(GgufFile::from_memory(bytes, "model.gguf"));
}

std::string indexer_refusal(const ModelParts& model) {
  return test::refusal_of<FileError>([&] {
    const std::vector<std::byte> bytes = model.build();
    const auto source = open_model_in_memory(bytes, "model.gguf");
    const auto backend = make_cpu_backend(1);
    load_weights(*source, *backend);
  });
}

std::string indexer_refusal_with(std::string_view key, const ModelParts::Value& value,
                                 ModelParts model = tiny_model("deepseek32")) {
  model.keys[std::string(key)] = value;
  return indexer_refusal(model);
}

/// A file of this number of layers, with tensors of two.
ModelParts glm_model(uint32_t layers, uint32_t context) {
  ModelParts model = tiny_model("glm-dsa");
  model.keys["glm-dsa.block_count"] = layers;
  model.keys["glm-dsa.context_length"] = context;
  return model;
}

std::string layers_with_indexer(const ModelConfig& config) {
  std::string text;
  for (int32_t layer = 0; layer < config.num_layers; ++layer)
    text += config.has_indexer(layer) ? 'x' : '-';
  return text;
}

TEST(IndexerConfig, IsRead) {
  for (const char* arch : {"deepseek32", "glm-dsa"}) {
    const ModelConfig config = indexer_config_of(tiny_model(arch));
    EXPECT_EQ(config.indexer.heads, 3);
    EXPECT_EQ(config.indexer.key_size, 8);
    EXPECT_EQ(config.indexer.most_chosen, 5);
    EXPECT_EQ(layers_with_indexer(config), "xx");
    EXPECT_EQ(indexer_refusal(tiny_model(arch)), "");
    std::string facts;
    for (const ConfigFact& fact : config_facts(config))
      facts += fmt::format("{}: {}\n", fact.name, fact.value);
    EXPECT_THAT(facts, HasSubstr("indexer, all: 3 heads of 8 choose 5 keys a query"));
  }
}

/// The key, the layers of GLM-5.2 by its context where there is no key, and all layers.
TEST(IndexerConfig, LayersTakeTheChoiceOfOthers) {
  EXPECT_EQ(layers_with_indexer(indexer_config_of(glm_model(11, 202752))), "xxxxxxxxxxx");
  EXPECT_EQ(layers_with_indexer(indexer_config_of(glm_model(12, 1 << 20))), "xxx---x---x-");
  ModelParts model = glm_model(4, 1 << 20);
  model.keys["glm-dsa.attention.indexer.types"] = std::vector<int32_t>{1, 0, 0, 1};
  EXPECT_EQ(layers_with_indexer(indexer_config_of(model)), "x--x");
  model.keys["glm-dsa.attention.indexer.types"] = std::vector<int32_t>{0, 1, 0, 1};
  EXPECT_THAT(indexer_refusal(model), HasSubstr("glm-dsa.attention.indexer.types is false for layer 0"));
  model.keys["glm-dsa.attention.indexer.types"] = std::vector<int32_t>{1, 2, 0, 1};
  EXPECT_THAT(indexer_refusal(model), HasSubstr("glm-dsa.attention.indexer.types"));
  model.keys["glm-dsa.attention.indexer.types"] = std::vector<int32_t>{1, 0, 0};
  EXPECT_THAT(indexer_refusal(model), HasSubstr("glm-dsa.attention.indexer.types"));
  model.keys["glm-dsa.attention.indexer.types"] = std::string("full");
  EXPECT_THAT(indexer_refusal(model), HasSubstr("glm-dsa.attention.indexer.types"));
}

/// A layer that takes a choice needs no indexer, and one in the file is not loaded.
TEST(IndexerTensors, OfLayersThatTakeAChoiceMayBeThereOrNot) {
  for (const bool has_tensors : {true, false}) {
    ModelParts model = tiny_model("glm-dsa");
    model.keys["glm-dsa.attention.indexer.types"] = std::vector<int32_t>{1, 0};
    for (const char* part :
         {"attn_q_b.weight", "attn_k.weight", "proj.weight", "k_norm.weight", "k_norm.bias"})
      if (!has_tensors) model.tensors.erase(fmt::format("blk.1.indexer.{}", part));
    EXPECT_EQ(indexer_refusal(model), "");
  }
}

TEST(IndexerConfig, RefusesHostileKeysByName) {
  const std::vector<ModelParts::Value> bad{ModelParts::Value(0u), -1,   0x7fffffff,
                                           int64_t{1} << 40,      1.5f, std::string("16")};
  for (const char* part : {"head_count", "key_length", "top_k"}) {
    const std::string key = fmt::format("deepseek32.attention.indexer.{}", part);
    for (size_t i = 0; i < bad.size(); ++i)
      EXPECT_THAT(indexer_refusal_with(key, bad[i]), HasSubstr(key)) << "value " << i;
    ModelParts model = tiny_model("deepseek32");
    model.keys.erase(key);
    EXPECT_THAT(indexer_refusal(model), HasSubstr(key + " is missing"));
  }
  EXPECT_THAT(indexer_refusal_with("deepseek32.attention.indexer.key_length", 2u),
              HasSubstr("deepseek32.attention.indexer.key_length is 2, expected at least "
                        "deepseek32.rope.dimension_count = 4"));
  EXPECT_THAT(indexer_refusal_with("deepseek32.attention.indexer.top_k", 65537u),
              HasSubstr("deepseek32.attention.indexer.top_k"));
  EXPECT_THAT(indexer_refusal_with("deepseek32.attention.q_lora_rank", 0u),
              HasSubstr("deepseek32.attention.q_lora_rank is 0, expected the rank of the indexer's queries"));
}

TEST(IndexerTensors, OfAnotherShapeAreNamed) {
  for (const char* part :
       {"attn_q_b.weight", "attn_k.weight", "proj.weight", "k_norm.weight", "k_norm.bias"}) {
    const std::string name = fmt::format("blk.1.indexer.{}", part);
    ModelParts model = tiny_model("deepseek32");
    ++model.tensors[name].dims.back();
    EXPECT_THAT(indexer_refusal(model), HasSubstr(fmt::format("tensor {}: shape", name)));
    model.tensors.erase(name);
    EXPECT_THAT(indexer_refusal(model), HasSubstr(fmt::format("tensor {} is missing", name)));
  }
  ModelParts model = tiny_model("deepseek2");
  model.tensors["blk.0.indexer.proj.weight"] = {DType::f32, {32, 3}, {}};
  EXPECT_THAT(indexer_refusal(model), HasSubstr("tensor blk.0.indexer.proj.weight is not part of"));
}

/// A layer for drafts is left in the file: it would need an indexer of its own.
TEST(IndexerConfig, ALayerForDraftsIsNotRun) {
  ModelParts model = glm_model(3, 64);
  model.keys["glm-dsa.nextn_predict_layers"] = 1u;
  model.tensors["blk.2.nextn.eh_proj.weight"] = {DType::f32, {64, 32}, {}};
  model.tensors["blk.2.attn_norm.weight"] = {DType::f32, {32}, {}};
  const std::vector<std::byte> bytes = model.build();
  const ModelConfig config = read_config(GgufFile::from_memory(bytes, "model.gguf"), true);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_FALSE(config.has_draft_layer);
  EXPECT_EQ(indexer_refusal(model), "");
}

/// Latent rows of all layers, then keys of the layers with an indexer.
TEST(IndexerMemory, IsPartOfABlock) {
  ModelParts model = glm_model(4, 64);
  model.keys["glm-dsa.attention.indexer.types"] = std::vector<int32_t>{1, 0, 1, 0};
  const ModelConfig config = indexer_config_of(model);
  const size_t block = size_t{16} * 2 * (4 * 20 + 2 * 8);
  EXPECT_EQ(KvCache::block_bytes(config, {}, DType::bf16, 16), block);
  const auto backend = make_cpu_backend(1);
  const KvCache cache(*backend, config, {}, DType::bf16, 3, 16);
  EXPECT_EQ(cache.bytes(), 3 * block);
  size_t bytes_of_arrays = 0;
  for (const KvArrays& arrays : cache.arrays())
    bytes_of_arrays += arrays.count * arrays.bytes;
  EXPECT_EQ(bytes_of_arrays, block);
  ASSERT_EQ(cache.arrays().size(), 2u);
  EXPECT_EQ(cache.arrays()[1].base, cache.indexer_layer(0).k);
  const auto* first = static_cast<const std::byte*>(cache.layer(0).k);
  EXPECT_EQ(static_cast<const std::byte*>(cache.indexer_layer(0).k) - first, 3 * 4 * 16 * 20 * 2);
  EXPECT_EQ(static_cast<const std::byte*>(cache.indexer_layer(2).k) - first,
            3 * (4 * 16 * 20 * 2 + 16 * 8 * 2));
  EXPECT_EQ(cache.indexer_layer(1).k, nullptr);
  EXPECT_EQ(cache.indexer_layer(2).num_blocks, 3);
  EXPECT_EQ(cache.indexer_layer(2).head_size, 8);
  EXPECT_TRUE(cache.indexer_layer(2).v_in_k);
}

/// Each rank chooses by all heads of the indexer.
TEST(IndexerTensors, AreWholeOnEachRank) {
  const auto source = open_model(source_path("tests/golden/deepseek32.gguf"));
  const ModelShard shard(*source, {1, 2});
  EXPECT_EQ(shard.config().indexer.heads, source->config().indexer.heads);
  for (const char* part : {"attn_q_b.weight", "attn_k.weight", "proj.weight"}) {
    const std::string name = fmt::format("blk.0.indexer.{}", part);
    EXPECT_EQ(shard.find_tensor(name)->shape(), source->find_tensor(name)->shape());
    EXPECT_EQ(shard.find_tensor(name)->data, source->find_tensor(name)->data);
  }
}

std::vector<OpInfo> ops_of(const ModelSource& source, int32_t max_positions) {
  test::RecordingBackend backend({});
  const ModelWeights weights = load_weights(source, backend);
  return DecoderPrograms(source.config(), weights, {}, backend,
                         {.max_tokens = 8, .logit_slice = 1, .max_positions = max_positions})
      .table();
}

/// Where no sequence is longer than what a query sees, keys alone are written.
TEST(IndexerOps, ChooseOnlyWhereSequencesAreLonger) {
  const auto source = open_model(source_path("tests/golden/glm-dsa.gguf"));
  const int32_t most = source->config().indexer.most_chosen;
  for (const bool chooses : {false, true}) {
    int32_t choices = 0, keys = 0, chosen = 0;
    for (const OpInfo& op : ops_of(*source, most + (chooses ? 1 : 0))) {
      choices += op.kind == OpKind::choose_keys ? 1 : 0;
      keys += op.name == "indexer_kv_write" ? 1 : 0;
      chosen += op.kind == OpKind::attention && op.most_chosen == most ? 1 : 0;
      EXPECT_TRUE(op.name != "indexer_q" || chooses);
    }
    EXPECT_EQ(keys, 3);
    EXPECT_EQ(choices, chooses ? 3 : 0);
    EXPECT_EQ(chosen, chooses ? 10 : 0) << "decoding and prompts of five layers";
  }
}

TEST(IndexerOps, CountWork) {
  const auto source = open_model(source_path("tests/golden/deepseek32.gguf"));  // 5 heads of 20, 19 keys
  BatchShape shape;
  shape.add_sequence(true, 100, 1, 1);
  shape.add_sequence(true, 10, 1, 1);
  int32_t counted = 0;
  for (const OpInfo& op : ops_of(*source, 256)) {
    const KernelWork work = op_work(op, shape);
    if (op.kind == OpKind::choose_keys) {
      EXPECT_EQ(work.bytes_read, 2 * (100 + 5) * 4 + 110 * 20 * 4);
      EXPECT_EQ(work.bytes_written, 2 * 19 * 4);
      EXPECT_EQ(work.flops, 110 * 5 * 43);
      ++counted;
    } else if (op.name == "indexer_kv_write") {
      EXPECT_EQ(work.bytes_written, 2 * (100 + 20) * 4);
      ++counted;
    } else if (op.kind == OpKind::attention && op.scope == TokenScope::decode) {
      EXPECT_EQ(work.flops, 2 * 4 * (40 + 24) * 2 * 19);
      ++counted;
    }
  }
  EXPECT_EQ(counted, 6) << "three ops of two layers";
}

std::vector<float> logits_with(const std::string& model, std::span<const TokenId> tokens,
                               int32_t max_model_len, int32_t chunk = 0) {
  const auto source = open_model(source_path("tests/golden/") + model);
  EngineOptions options;
  options.max_model_len = max_model_len;
  Evaluator evaluator(*source, options);
  std::vector<float> logits;
  evaluator.run(tokens, chunk, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

/// As long as queries see all keys, logits are those of the model without a choice, bit for bit; then they are others.
TEST(IndexerLogits, AreThoseOfAttentionToAllKeysUpToTheNumberThatIsChosen) {
  for (const char* model : {"deepseek32.gguf", "glm-dsa.gguf"}) {
    const auto source = open_model(source_path("tests/golden/") + model);
    const int32_t most = source->config().indexer.most_chosen;
    const std::vector<TokenId> tokens =
        test::read_logits(source_path("tests/golden/") +
                          std::string(model).substr(0, std::strlen(model) - 5) + ".logits")
            .tokens;
    const std::span<const TokenId> first(tokens.data(), static_cast<size_t>(most));
    const std::vector<float> dense = logits_with(model, first, most);
    EXPECT_EQ(logits_with(model, first, 256), dense);
    const std::vector<float> all = logits_with(model, tokens, 256);
    EXPECT_TRUE(std::equal(dense.begin(), dense.end(), all.begin()));
    for (const int32_t chunk : {1, 7, 30})
      EXPECT_EQ(logits_with(model, tokens, 256, chunk), all) << "pieces of " << chunk;
  }
}

}  // namespace
}  // namespace minfer
