// Gemma 4's plain decoder in files: layers without values of their own, scales behind layers, and refusals.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "models/decoder/config/config_facts.h"
#include "models/decoder/weights/weights.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using test::ModelParts;
using test::tiny_model;
using ::testing::Contains;
using ::testing::HasSubstr;

/// A window in the first of two layers; the second has one KV head of 16 elements and no values of its own.
ModelParts gemma4_model() {
  ModelParts model = tiny_model("gemma4");
  const auto set = [&](std::string_view key, ModelParts::Value value) {
    model.keys[fmt::format("gemma4.{}", key)] = std::move(value);
  };
  set("attention.sliding_window_pattern", std::vector<int32_t>{1, 0});
  set("attention.head_count_kv", std::vector<int32_t>{2, 1});
  for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
    set(key, 16u);
    set(fmt::format("{}_swa", key), 8u);
  }
  set("attention.shared_kv_layers", 0u);
  set("embedding_length_per_layer_input", 0u);
  model.tensors["blk.1.attn_q.weight"].dims = {32, 64};
  model.tensors["blk.1.attn_k.weight"].dims = {32, 16};
  model.tensors.erase("blk.1.attn_v.weight");
  model.tensors["blk.1.attn_output.weight"].dims = {64, 32};
  model.tensors["blk.1.attn_q_norm.weight"].dims = {16};
  model.tensors["blk.1.attn_k_norm.weight"].dims = {16};
  model.tensors["blk.1.layer_output_scale.weight"] = {DType::f32, {1}, {}};
  model.tensors["rope_freqs.weight"] = {DType::f32, {8}, {}};
  return model;
}

ModelConfig gemma4_config(const ModelParts& model) {
  const std::vector<std::byte> bytes = model.build();
  return read_config(GgufFile::from_memory(bytes, "model.gguf"));
}

ModelWeights gemma4_weights(const ModelParts& model) {
  const std::vector<std::byte> bytes = model.build();
  const auto source = open_model_in_memory(bytes, "model.gguf");
  return load_weights(*source, *make_cpu_backend(1));
}

std::string gemma4_refusal(const ModelParts& model) {
  try {
    gemma4_weights(model);
    return "";
  } catch (const FileError& error) {
    return error.what();
  }
}

TEST(Gemma4, LayersWithoutValuesTakeTheirKeys) {
  const ModelConfig config = gemma4_config(gemma4_model());
  EXPECT_FALSE(config.values_are_keys(0));
  EXPECT_TRUE(config.values_are_keys(1));
  EXPECT_EQ(config.qkv_size(0), 32 + 16 + 16);
  EXPECT_EQ(config.qkv_size(1), 64 + 16);
  EXPECT_EQ(config.heads(0), (LayerHeads{2, 8, 1.0f})) << "scores are not scaled";
  EXPECT_EQ(config.heads(1), (LayerHeads{1, 16, 1.0f}));
  EXPECT_EQ(config.embedding_scale, std::sqrt(32.0f));
  EXPECT_EQ(config.layer(0).rope, 1);
  EXPECT_EQ(config.rotary_size_of(0), 8);
  EXPECT_EQ(config.rotary_size_of(1), 16);
}

TEST(Gemma4, ALayerMayHaveAScale) {
  const ModelWeights weights = gemma4_weights(gemma4_model());
  EXPECT_EQ(weights.layers[0].output_scale, 1.0f);
  EXPECT_NE(weights.layers[1].output_scale, 1.0f);
  EXPECT_TRUE(weights.layers[0].v);
  EXPECT_FALSE(weights.layers[1].v);
  ModelParts model = gemma4_model();
  model.tensors["blk.1.layer_output_scale.weight"].dims = {2};
  EXPECT_THAT(gemma4_refusal(model),
              HasSubstr("tensor blk.1.layer_output_scale.weight: shape [2], expected [1]"));
  const float infinity = std::numeric_limits<float>::infinity();
  const auto bytes = std::as_bytes(std::span(&infinity, 1));
  model.tensors["blk.1.layer_output_scale.weight"] = {DType::f32, {1}, {bytes.begin(), bytes.end()}};
  EXPECT_THAT(gemma4_refusal(model),
              HasSubstr("layer_output_scale.weight holds inf, expected a finite number"));
}

TEST(Gemma4, PartsOfItsOtherSizesNeedTheirTensorsAndLayers) {
  ModelParts model = gemma4_model();
  model.keys["gemma4.embedding_length_per_layer_input"] = 1u;
  EXPECT_THAT(gemma4_refusal(model), HasSubstr("tensor per_layer_token_embd.weight is missing"));
  model = gemma4_model();
  model.keys["gemma4.attention.shared_kv_layers"] = 1u;
  EXPECT_THAT(
      gemma4_refusal(model),
      HasSubstr("gemma4.attention.shared_kv_layers is 1: no layer before layer 1 attends as it does"));
  model.keys["gemma4.attention.shared_kv_layers"] = 2u;
  EXPECT_THAT(gemma4_refusal(model), HasSubstr("gemma4.attention.shared_kv_layers is 2, expected"));
  for (const char* key : {"attention.shared_kv_layers", "embedding_length_per_layer_input"}) {
    model = tiny_model("gemma3");
    model.keys[fmt::format("gemma3.{}", key)] = 1u;
    EXPECT_THAT(gemma4_refusal(model),
                HasSubstr(fmt::format("gemma3.{} is 1: not supported with architecture gemma3", key)));
  }
}

TEST(Gemma4, OtherFamiliesNeedTheirValues) {
  ModelParts model = tiny_model("gemma3");
  model.tensors.erase("blk.1.attn_v.weight");
  EXPECT_THAT(gemma4_refusal(model), HasSubstr("tensor blk.1.attn_v.weight is missing"));
}

TEST(Gemma4, FactsSayIt) {
  std::vector<std::string> facts;
  for (const ConfigFact& fact : config_facts(gemma4_config(gemma4_model())))
    facts.push_back(fmt::format("{}: {}", fact.name, fact.value));
  EXPECT_THAT(facts, Contains("heads, 4 of 8, 2 for keys and values: 0"));
  EXPECT_THAT(facts, Contains("heads, 4 of 16, 1 for keys and values: 1"));
  EXPECT_THAT(facts, Contains("values are keys before their norm: 1"));
  EXPECT_THAT(facts, Contains("norms of values: each head, without weights"));
  EXPECT_THAT(facts, Contains("attention scale: 1"));
}

}  // namespace
}  // namespace minfer
