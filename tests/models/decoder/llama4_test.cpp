// Llama 4 in files: which layers have chunks, positions, a temperature and experts; and refusals.
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/decoder/config/config_facts.h"
#include "models/decoder/decoder.h"
#include "models/decoder/weights/weights.h"
#include "tests/support/models/tiny_model.h"

namespace minfer {
namespace {

using test::ModelParts;
using test::tiny_model;
using ::testing::Contains;
using ::testing::HasSubstr;
using Keys = std::map<std::string, ModelParts::Value>;

/// Two layers with experts, unless `keys`, written without "llama4.", say otherwise.
ModelParts llama4_with(const Keys& keys = {}, int32_t experts = 4) {
  ModelParts model = tiny_model("llama4", experts);
  for (const auto& [key, value] : keys)
    model.keys["llama4." + key] = value;
  return model;
}

ModelConfig llama4_config(const Keys& keys = {}, int32_t experts = 4) {
  const std::vector<std::byte> bytes = llama4_with(keys, experts).build();
  return read_config(GgufFile::from_memory(bytes, "model.gguf"));
}

std::string llama4_refusal(const Keys& keys, int32_t experts = 4) {
  try {
    llama4_config(keys, experts);
    return "";
  } catch (const FileError& error) {
    return error.what();
  }
}

TEST(Llama4, HasChunksAndPositionsInThreeLayersOfFour) {
  const ModelConfig config = llama4_config({{"block_count", 9u}});
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const bool is_full = i % 4 == 3;
    const LayerConfig& layer = config.layer(i);
    EXPECT_EQ(layer.window, is_full ? AttentionWindow{} : AttentionWindow(8192, true)) << i;
    EXPECT_EQ(layer.rope, is_full ? LayerConfig::kNoRope : 0) << i;
    EXPECT_EQ(layer.has_temperature, is_full) << i;
    EXPECT_TRUE(layer.has_experts) << i;
  }
  EXPECT_EQ(config.temperature.scale, 0.1f);
  EXPECT_EQ(config.temperature.length, 8192);
  EXPECT_EQ(config.shared_ffn_size, 64) << "one shared expert";
  EXPECT_EQ(config.expert_choice, (ExpertChoice{.score = ExpertScore::sigmoid, .normalise = false}));
}

TEST(Llama4, TakesSizesFromKeys) {
  const ModelConfig config = llama4_config({{"block_count", 4u},
                                            {"attention.sliding_window", 16u},
                                            {"attention.temperature_scale", 0.5f},
                                            {"attention.temperature_length", 32u},
                                            {"expert_shared_count", 2u}});
  EXPECT_EQ(config.layer(0).window, AttentionWindow(16, true));
  EXPECT_EQ(config.temperature.scale, 0.5f);
  EXPECT_EQ(config.temperature.length, 32);
  EXPECT_EQ(config.shared_ffn_size, 128);
  EXPECT_FALSE(
      llama4_config({{"block_count", 4u}, {"attention.temperature_scale", 0.0f}}).layer(3).has_temperature);
}

/// llama.cpp's converter writes a window of 0 if all layers have full attention: then all have positions.
TEST(Llama4, WithoutChunksAllLayersHavePositions) {
  const ModelConfig config = llama4_config({{"block_count", 8u}, {"attention.sliding_window", 0u}});
  for (const LayerConfig& layer : config.layers)
    EXPECT_EQ(layer, (LayerConfig{.has_experts = true}));
}

TEST(Llama4, HasExpertsInEveryNthLayer) {
  const ModelConfig config = llama4_config({{"block_count", 6u}, {"interleave_moe_layer_step", 3u}});
  for (int32_t i = 0; i < config.num_layers; ++i)
    EXPECT_EQ(config.layer(i).has_experts, i % 3 == 2) << i;
  EXPECT_EQ(config.ffn_size, 64);
  EXPECT_EQ(config.num_expert_layers(), 2);
  EXPECT_EQ(llama4_config().ffn_size, 0) << "no layer is dense";
}

/// A model with 128 experts has no QK norm; no key of the file says so.
TEST(Llama4, NormsQueriesAndKeysUnlessItIsMaverick) {
  EXPECT_EQ(llama4_config().architecture.qk_norm, QkNorm::rotated_head);
  EXPECT_EQ(llama4_config({}, 128).architecture.qk_norm, QkNorm::none);
}

TEST(Llama4, RefusesWhatItsKeysCannotBe) {
  const auto expect_refused = [](const std::string& key, const std::vector<ModelParts::Value>& values) {
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_THAT(llama4_refusal({{key, values[i]}}), HasSubstr("llama4." + key)) << "value " << i;
  };
  const std::vector<ModelParts::Value> no_integers{-1, INT64_MAX, 1.5f, std::string("4"), true};
  for (const char* key : {"attention.sliding_window", "attention.temperature_length",
                          "interleave_moe_layer_step", "expert_shared_count"})
    expect_refused(key, no_integers);
  for (const char* key :
       {"attention.temperature_length", "interleave_moe_layer_step", "expert_feed_forward_length"})
    expect_refused(key, {0u});
  expect_refused("interleave_moe_layer_step", {3u});
  expect_refused("attention.temperature_scale", {-1.0f, std::numeric_limits<float>::infinity(),
                                                 std::numeric_limits<float>::quiet_NaN(), 1u});
  EXPECT_THAT(
      llama4_refusal(
          {{"leading_dense_block_count", 1u}, {"block_count", 3u}, {"interleave_moe_layer_step", 3u}}),
      "");
  EXPECT_THAT(
      llama4_refusal(
          {{"leading_dense_block_count", 2u}, {"block_count", 3u}, {"interleave_moe_layer_step", 2u}}),
      HasSubstr("llama4.interleave_moe_layer_step is 2"));
  EXPECT_EQ(llama4_refusal({}, 0), "") << "MobileLLM has no experts";
}

TEST(Llama4, FactsSayIt) {
  std::vector<std::string> facts;
  const ModelConfig config = llama4_config({{"block_count", 4u}, {"interleave_moe_layer_step", 2u}});
  for (const ConfigFact& fact : config_facts(config))
    facts.push_back(fmt::format("{}: {}", fact.name, fact.value));
  EXPECT_THAT(facts, Contains("attention, chunks of 8192, RoPE 0: 0, 1, 2"));
  EXPECT_THAT(facts, Contains("attention, full, temperature by position, no positions: 3"));
  EXPECT_THAT(facts,
              Contains("feed-forward: SwiGLU of 64 an expert; 64 in dense layers, all but every one of 2"));
  EXPECT_THAT(facts, Contains("weights of experts: of what they are given"));
  EXPECT_THAT(facts, Contains("norms of queries and keys: each head that is rotated, without weights"));
}

}  // namespace
}  // namespace minfer
