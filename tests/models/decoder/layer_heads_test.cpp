// Layers whose heads differ: in files, in memory, in the profile's table of ops, among ranks, and their results.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/evaluator.h"
#include "engine/options/engine_options.h"
#include "kernels/work.h"
#include "models/decoder/config/config_facts.h"
#include "models/decoder/decoder.h"
#include "models/decoder/weights/shard.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/random_data.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::ModelParts;
using test::tiny_model;
using ::testing::Contains;
using ::testing::HasSubstr;

/// A matrix with rows of `columns` elements, in a file's form.
ModelParts::TensorPart matrix(const std::vector<float>& values, uint64_t columns) {
  const auto bytes = std::as_bytes(std::span(values));
  return {DType::f32, {columns, values.size() / columns}, {bytes.begin(), bytes.end()}};
}

std::vector<float> random_rows(int64_t rows, int64_t columns, uint64_t seed) {
  return test::normal_values(rows * columns, seed, 1.0f / std::sqrt(static_cast<float>(columns)));
}

/// `heads` heads of `size` rows each. In each head, the rows from `kept` on become zeros, or are left out.
std::vector<float> short_heads(const std::vector<float>& rows, int64_t columns, int64_t size, int64_t kept,
                               bool leaves_out) {
  std::vector<float> values;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool is_kept = static_cast<int64_t>(i) / columns % size < kept;
    if (is_kept || !leaves_out) values.push_back(is_kept ? rows[i] : 0.0f);
  }
  return values;
}

/// A window in the first of two layers. `own_heads`: that layer's heads have 8 elements and the other's 16; else all have 16, and the first
/// layer's last 8 are zeros, so that both models are the same function. Both have the same number of rotated elements and the same scale.
ModelParts windowed_model(bool own_heads) {
  ModelParts model = tiny_model("gemma2");
  const auto set = [&](std::string_view key, ModelParts::Value value) {
    model.keys[fmt::format("gemma2.{}", key)] = std::move(value);
  };
  set("attention.sliding_window", 8u);
  set("attention.sliding_window_pattern", std::vector<int32_t>{1, 0});
  set("attention.key_length", 16u);
  set("attention.value_length", 16u);
  set("rope.dimension_count", 8u);
  set("attention.scale", 0.3f);
  if (own_heads) {
    set("attention.key_length_swa", 8u);
    set("attention.value_length_swa", 8u);
  }
  uint64_t seed = 1;
  for (const auto& [name, heads] : {std::pair{"q", 4}, {"k", 2}, {"v", 2}}) {
    const std::vector<float> rows = random_rows(heads * 16, 32, ++seed);
    model.tensors[fmt::format("blk.0.attn_{}.weight", name)] =
        matrix(short_heads(rows, 32, 16, 8, own_heads), 32);
    model.tensors[fmt::format("blk.1.attn_{}.weight", name)] =
        matrix(random_rows(heads * 16, 32, ++seed), 32);
  }
  // Its columns belong to heads, so row elements stand for rows of one column.
  const std::vector<float> output = random_rows(32, 64, ++seed);
  model.tensors["blk.0.attn_output.weight"] =
      matrix(short_heads(output, 1, 16, 8, own_heads), own_heads ? 32 : 64);
  model.tensors["blk.1.attn_output.weight"] = matrix(random_rows(32, 64, ++seed), 64);
  return model;
}

/// Two KV heads; the second layer has four. `twice`: these are two heads, each twice; else it has these two, which is the same function.
ModelParts model_of_kv_heads(bool twice) {
  ModelParts model = tiny_model();
  if (twice) model.keys["llama.attention.head_count_kv"] = std::vector<int32_t>{2, 4};
  uint64_t seed = 40;
  for (const char* name : {"k", "v"}) {
    const std::vector<float> rows = random_rows(16, 32, ++seed);
    std::vector<float> values;
    for (const int64_t head : {0, 0, 1, 1}) {
      if (!twice && std::ssize(values) == (head + 1) * 8 * 32) continue;
      const auto first = rows.begin() + head * 8 * 32;
      values.insert(values.end(), first, first + 8 * 32);
    }
    model.tensors[fmt::format("blk.1.attn_{}.weight", name)] = matrix(values, 32);
  }
  return model;
}

ModelConfig layered_config(const ModelParts& model) {
  const std::vector<std::byte> bytes = model.build();
  return read_config(GgufFile::from_memory(bytes, "model.gguf"));
}

std::string layered_refusal(const ModelParts& model) {
  return test::refusal_of<FileError>([&] {
    const std::vector<std::byte> bytes = model.build();
    const auto source = open_model_in_memory(bytes, "model.gguf");
    load_weights(*source, *make_cpu_backend(1));
  });
}

std::vector<float> layered_logits(const ModelParts& model, int32_t chunk) {
  const std::vector<std::byte> bytes = model.build();
  const auto source = open_model_in_memory(bytes, "model.gguf");
  EngineOptions options;
  options.max_model_len = 40;
  Evaluator evaluator(*source, options);
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < 40; ++i)
    tokens.push_back(3 + i * 7 % 200);
  std::vector<float> logits;
  evaluator.run(tokens, chunk, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

TEST(LayerHeads, AreReadFromKeysOfTheirKind) {
  const ModelConfig config = layered_config(windowed_model(true));
  EXPECT_FALSE(config.has_like_heads());
  EXPECT_EQ(config.heads(0), (LayerHeads{2, 8, 0.3f}));
  EXPECT_EQ(config.heads(1), (LayerHeads{2, 16, 0.3f}));
  EXPECT_EQ(config.q_size(0), 32);
  EXPECT_EQ(config.q_size(1), 64);
  EXPECT_EQ(config.kv_size(0), 16);
  EXPECT_EQ(config.qkv_size(0), 64);
  EXPECT_EQ(config.qkv_size(1), 128);
  EXPECT_EQ(config.output_size(0), 32);
  EXPECT_EQ(config.qkv_size(), 128) << "of the largest layer";
  EXPECT_TRUE(layered_config(windowed_model(false)).has_like_heads());
  EXPECT_EQ(layered_config(windowed_model(false)).heads(0), (LayerHeads{2, 16, 0.3f}));

  const ModelConfig of_kv_heads = layered_config(model_of_kv_heads(true));
  EXPECT_EQ(of_kv_heads.heads(0).kv_heads, 2);
  EXPECT_EQ(of_kv_heads.heads(1).kv_heads, 4);
  EXPECT_EQ(of_kv_heads.kv_size(1), 32);
  EXPECT_EQ(of_kv_heads.qkv_size(), 96);
}

TEST(LayerHeads, ScaleTheirScoresByTheirSizeUnlessTheFileSaysOtherwise) {
  ModelParts model = windowed_model(true);
  model.keys.erase("gemma2.attention.scale");
  EXPECT_FLOAT_EQ(layered_config(model).heads(0).scale, 1.0f / std::sqrt(8.0f));
  EXPECT_FLOAT_EQ(layered_config(model).heads(1).scale, 0.25f);
}

TEST(LayerHeads, RotateAsManyElementsAsTheirTableHas) {
  ModelParts model = tiny_model("gemma3");
  model.keys["gemma3.attention.sliding_window_pattern"] = std::vector<int32_t>{1, 0};
  model.keys["gemma3.attention.key_length"] = 16u;
  model.keys["gemma3.attention.value_length"] = 16u;
  model.keys["gemma3.rope.dimension_count"] = 12u;
  EXPECT_EQ(layered_config(model).rotary_size_of(0), 12);
  model.keys["gemma3.attention.key_length_swa"] = 8u;
  model.keys["gemma3.attention.value_length_swa"] = 8u;
  EXPECT_EQ(layered_config(model).rotary_size_of(0), 8) << "all of a head";
  EXPECT_EQ(layered_config(model).rotary_size_of(1), 12);
  model.keys["gemma3.rope.dimension_count_swa"] = 4u;
  EXPECT_EQ(layered_config(model).rotary_size_of(0), 4);
  model.keys["gemma3.rope.dimension_count_swa"] = 10u;
  EXPECT_THAT(
      layered_refusal(model),
      HasSubstr("gemma3.rope.dimension_count_swa is 10, expected an even number up to the head size 8"));
}

TEST(LayerHeads, AreRefusedByTheKeysName) {
  ModelParts model = windowed_model(true);
  model.keys["gemma2.attention.value_length_swa"] = 16u;
  EXPECT_THAT(
      layered_refusal(model),
      HasSubstr("gemma2.attention.value_length_swa differs from gemma2.attention.key_length_swa = 8"));
  for (const ModelParts::Value& bad :
       {ModelParts::Value(0u), ModelParts::Value(-1), ModelParts::Value(INT64_MAX), ModelParts::Value(1.5f),
        ModelParts::Value(std::string("8"))}) {
    model = windowed_model(true);
    model.keys["gemma2.attention.key_length_swa"] = bad;
    EXPECT_THAT(layered_refusal(model), HasSubstr("gemma2.attention.key_length_swa"));
  }
  model = windowed_model(true);
  model.keys["gemma2.rope.dimension_count"] = 12u;
  EXPECT_THAT(layered_refusal(model),
              HasSubstr("gemma2.rope.dimension_count is 12, expected at most 8, the head size of layer 0"));
  model = model_of_kv_heads(true);
  model.keys["llama.attention.head_count_kv"] = std::vector<int32_t>{2, 3};
  EXPECT_THAT(
      layered_refusal(model),
      HasSubstr("llama.attention.head_count is 4, expected a multiple of llama.attention.head_count_kv = 3"));
  model.keys["llama.attention.head_count_kv"] = std::vector<int32_t>{4, 2};
  EXPECT_THAT(layered_refusal(model), HasSubstr("tensor blk.0.attn_k.weight: shape [16, 32], expected [32, "
                                                "32] from llama.attention.head_count_kv"));
  model = windowed_model(true);
  model.tensors["blk.1.attn_output.weight"].dims = {32, 32};
  model.tensors["blk.1.attn_output.weight"].data.clear();
  EXPECT_THAT(layered_refusal(model),
              HasSubstr("tensor blk.1.attn_output.weight: shape [32, 32], expected [32, 64]"));
}

/// A prompt at once, in parts, and token by token.
TEST(LayerHeads, ComputeWhatHeadsOfOneSizeDo) {
  for (const int32_t chunk : {0, 7, 1}) {
    EXPECT_LE(
        test::nmse(layered_logits(windowed_model(true), chunk), layered_logits(windowed_model(false), chunk)),
        1e-11);
    EXPECT_LE(test::nmse(layered_logits(model_of_kv_heads(true), chunk),
                         layered_logits(model_of_kv_heads(false), chunk)),
              1e-11);
  }
  ModelParts other = windowed_model(true);
  other.keys["gemma2.attention.scale"] = 0.35f;
  EXPECT_GT(test::nmse(layered_logits(other, 0), layered_logits(windowed_model(true), 0)), 1e-6)
      << "notices a scale";
}

/// q, k and v of each layer in one tensor.
TEST(LayerHeads, AreSplitFromFusedTensors) {
  ModelParts model = windowed_model(true);
  for (const char* block : {"blk.0.", "blk.1."}) {
    ModelParts::TensorPart fused{DType::f32, {32, 0}, {}};
    for (const char* name : {"attn_q.weight", "attn_k.weight", "attn_v.weight"}) {
      const ModelParts::TensorPart part = model.tensors[std::string(block) + name];
      fused.dims[1] += part.dims[1];
      fused.data.insert(fused.data.end(), part.data.begin(), part.data.end());
      model.tensors.erase(std::string(block) + name);
    }
    model.tensors[std::string(block) + "attn_qkv.weight"] = fused;
  }
  // Other tensors are drawn by their place in the file, so they differ from those of the model above.
  EXPECT_EQ(layered_refusal(model), "");
}

TEST(LayerHeads, HaveKvMemoryOfTheirSize) {
  constexpr int32_t kBlocks = 3, kTokens = 16;
  const ModelConfig config = layered_config(windowed_model(true));
  EXPECT_EQ(KvLayout::of(config, 4096, kTokens),
            (KvLayout{.parts = 1, .window_parts = 2, .window = 8, .has_window_table = true}))
      << "a part of the full layer has twice the bytes";
  const KvLayout layout;
  const size_t small = kTokens * 2 * 8 * sizeof(float), large = 2 * small;
  EXPECT_EQ(KvCache::block_bytes(config, layout, DType::f32, kTokens), 2 * (small + large));
  const auto backend = make_cpu_backend(1);
  const KvCache kv(*backend, config, layout, DType::f32, kBlocks, kTokens);
  EXPECT_EQ(kv.bytes(), kBlocks * 2 * (small + large));
  const auto at = [&](const void* data) {
    return static_cast<size_t>(static_cast<const std::byte*>(data) -
                               static_cast<const std::byte*>(kv.layer(0).k));
  };
  EXPECT_EQ(at(kv.layer(0).v), kBlocks * small);
  EXPECT_EQ(at(kv.layer(1).k), kBlocks * 2 * small);
  EXPECT_EQ(at(kv.layer(1).v), kBlocks * (2 * small + large));
  EXPECT_EQ(kv.layer(0).head_size, 8);
  EXPECT_EQ(kv.layer(1).head_size, 16);
  EXPECT_EQ(kv.layer(1).value_size(), 16);
}

TEST(LayerHeads, AreCountedByTheProfileLayerByLayer) {
  const std::vector<std::byte> bytes = windowed_model(true).build();
  const auto source = open_model_in_memory(bytes, "model.gguf");
  const ModelConfig& config = source->config();
  const auto backend = make_cpu_backend(1);
  const KvCache kv(*backend, config, {}, DType::f32, 4, 16);
  const RecurrentStatePool states(*backend, config, 0);
  const Decoder decoder(config, load_weights(*source, *backend), *backend, kv, states,
                        {.max_tokens = 16, .logit_slice = 4, .max_positions = 64});
  const auto op = [&](std::string_view name, int32_t layer) {
    const auto found = std::ranges::find_if(
        decoder.ops(), [&](const OpInfo& info) { return info.name == name && info.layer == layer; });
    EXPECT_NE(found, decoder.ops().end()) << name;
    return *found;
  };
  EXPECT_EQ(op("qkv", 0).out_features, 64);
  EXPECT_EQ(op("qkv", 1).out_features, 128);
  EXPECT_EQ(op("attn_output", 0).in_features, 32);
  EXPECT_EQ(op("attn_output", 1).in_features, 64);
  EXPECT_EQ(op("attention_decode", 0).head_size, 8);
  EXPECT_EQ(op("attention_decode", 1).head_size, 16);
  EXPECT_EQ(op("rope_kv_write", 0).in_features, 64);
  EXPECT_EQ(op("rope_kv_write", 1).v_head_size, 16);
}

TEST(LayerHeads, AreDividedAmongRanksKindByKind) {
  ModelParts model = model_of_kv_heads(true);
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"})
    model.keys.erase(key);
  model.keys["llama.vocab_size"] = 288u;
  for (const char* name : {"token_embd.weight", "output.weight"})
    model.tensors[name].dims[1] = 288;
  const std::vector<std::byte> bytes = model.build();
  const auto source = open_model_in_memory(bytes, "model.gguf");
  for (int32_t rank = 0; rank < 4; ++rank) {
    const ModelShard shard(*source, {rank, 4});
    EXPECT_EQ(shard.config().heads(0).kv_heads, 1) << "two ranks hold the same one";
    EXPECT_EQ(shard.config().heads(1).kv_heads, 1);
    EXPECT_EQ(shard.config().kv_size(1), 8);
    for (const auto& [name, parts] : {std::pair{"blk.0.attn_k.weight", 2}, {"blk.1.attn_v.weight", 4}}) {
      const HostTensor& share = *shard.find_tensor(name);
      EXPECT_EQ(share.rows, 8) << name;
      EXPECT_EQ(share.data, source->find_tensor(name)->row(0, rank * parts / 4 * 8))
          << name << " of rank " << rank;
    }
  }
  ModelConfig config = source->config();
  config.layers[0].heads->kv_heads = 3;
  config.num_heads = 12;
  config.vocab_size = 600;
  try {
    shard_config(config, {0, 4});
    FAIL() << "three KV heads among four ranks";
  } catch (const Error& error) {
    EXPECT_THAT(std::string(error.what()), HasSubstr("3 KV heads of model"));
  }
}

TEST(LayerHeads, AreFacts) {
  std::vector<std::string> facts;
  for (const ConfigFact& fact : config_facts(layered_config(windowed_model(true))))
    facts.push_back(fmt::format("{}: {}", fact.name, fact.value));
  EXPECT_THAT(facts, Contains("heads, 4 of 8, 2 for keys and values: 0"));
  EXPECT_THAT(facts, Contains("heads, 4 of 16, 2 for keys and values: 1"));
  facts.clear();
  for (const ConfigFact& fact : config_facts(layered_config(windowed_model(false))))
    facts.push_back(fmt::format("{}: {}", fact.name, fact.value));
  EXPECT_THAT(facts, Contains("heads: 4 of 16, 2 for keys and values"));
}

}  // namespace
}  // namespace minfer
