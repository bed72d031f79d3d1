// YaRN's keys in read_config, and the resulting magnitude.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/models/config_of.h"

namespace minfer {
namespace {

using test::config_of;
using test::ModelParts;
using test::refusal;
using test::tiny_model;
using test::with;
using ::testing::HasSubstr;

class YarnConfig : public ::testing::Test {
 protected:
  RopeScaling scaling() const { return config_of(model_).ropes.at(0).scaling; }
  void set(std::string_view key, const ModelParts::Value& value) {
    model_.keys[fmt::format("llama.rope.scaling.{}", key)] = value;
  }
  void SetUp() override {
    set("type", std::string("yarn"));
    set("factor", 4.0f);
  }
  ModelParts model_ = tiny_model();
};

TEST_F(YarnConfig, HasTheDefaultsOfThePaper) {
  EXPECT_EQ(scaling().kind, RopeScaling::Kind::yarn);
  EXPECT_EQ(scaling().original_context, 64) << "the context itself";
  EXPECT_EQ(scaling().beta_fast, 32.0f);
  EXPECT_EQ(scaling().beta_slow, 1.0f);
  EXPECT_FLOAT_EQ(scaling().magnitude, 1.138629436f);  // 0.1 ln 4 + 1
  model_.keys.erase("llama.rope.scaling.factor");
  EXPECT_THAT(refusal(model_), HasSubstr("llama.rope.scaling.factor is missing"));
}

TEST_F(YarnConfig, TakesEveryKey) {
  set("original_context_length", 16u);
  set("yarn_beta_fast", 8.0f);
  set("yarn_beta_slow", 0.5f);
  set("yarn_ext_factor", 1.0f);
  EXPECT_EQ(scaling().original_context, 16);
  EXPECT_EQ(scaling().beta_fast, 8.0f);
  EXPECT_EQ(scaling().beta_slow, 0.5f);
  set("yarn_ext_factor", 0.5f);
  EXPECT_THAT(refusal(model_), HasSubstr("llama.rope.scaling.yarn_ext_factor is 0.5: only 1 is supported"));
}

/// Of queries, from the original context on: by a key, and in Mistral 4 without one.
TEST(YarnTemperature, GrowsFromTheOriginalContextOn) {
  for (const char* arch : {"mistral4", "deepseek2", "mistral3"}) {
    const auto key = [&](const char* part) { return fmt::format("{}.{}", arch, part); };
    ModelParts model = tiny_model(arch);
    EXPECT_FALSE(config_of(model).layer(1).has_temperature) << arch;
    model.keys[key("rope.scaling.type")] = std::string("yarn");
    model.keys[key("rope.scaling.factor")] = 4.0f;
    model.keys[key("rope.scaling.original_context_length")] = 16u;
    const bool by_family = std::string_view(arch) == "mistral4";
    EXPECT_EQ(config_of(model).temperature.scale, by_family ? 0.1f : 0.0f) << arch;
    EXPECT_EQ(config_of(model).layer(1).has_temperature, by_family) << arch;
    model.keys[key("attention.temperature_scale")] = 0.5f;
    EXPECT_EQ(config_of(model).temperature.scale, 0.5f) << arch;
    EXPECT_EQ(config_of(model).temperature.length, 16) << arch;
    EXPECT_EQ(config_of(model).temperature.first, 0) << arch;
    EXPECT_TRUE(config_of(model).layer(1).has_temperature) << arch;
  }
}

TEST_F(YarnConfig, MagnitudeIsTheFormulaTimesAttnFactor) {
  set("attn_factor", 0.5f);
  EXPECT_FLOAT_EQ(scaling().magnitude, 0.5f * 1.138629436f);
}

TEST_F(YarnConfig, AttnFactorOfOlmo3IsTheMagnitude) {
  model_ = tiny_model("olmo2");
  const auto set_olmo = [&](std::string_view key, ModelParts::Value value) {
    model_.keys[fmt::format("olmo2.rope.scaling.{}", key)] = std::move(value);
  };
  set_olmo("type", std::string("yarn"));
  set_olmo("factor", 8.0f);
  EXPECT_FLOAT_EQ(scaling().magnitude, 1.207944154f) << "by the formula";
  set_olmo("attn_factor", 1.25f);
  EXPECT_EQ(scaling().magnitude, 1.25f) << "files of 2025";
  set_olmo("yarn_attn_factor", 1.5f);
  EXPECT_EQ(scaling().magnitude, 1.5f) << "files since";
  set_olmo("yarn_attn_factor", 0.0f);
  EXPECT_THAT(refusal(model_), HasSubstr("olmo2.rope.scaling.yarn_attn_factor is 0"));
}

TEST_F(YarnConfig, TheLogMultiplierDividesByItsOwnFormula) {
  set("yarn_log_multiplier", 1.0f);
  EXPECT_FLOAT_EQ(scaling().magnitude, 1.0f) << "as Mistral's own files have it";
  set("yarn_log_multiplier", 0.5f);
  EXPECT_FLOAT_EQ(scaling().magnitude, 1.138629436f / 1.069314718f);
  set("yarn_log_multiplier", -1.0f);
  EXPECT_THAT(refusal(model_), HasSubstr("yarn_log_multiplier is -1"));
}

TEST_F(YarnConfig, AStatedAttentionFactorReplacesTheFormula) {
  set("yarn_attn_factor", 1.25f);
  EXPECT_EQ(scaling().magnitude, 1.25f);
}

/// Converters write attention_factor, which replaces the formula, and attn_factor, which multiplies it and is 1, to the same key.
TEST_F(YarnConfig, AStatedAttentionFactorOfOneLeavesTheFormula) {
  set("yarn_attn_factor", 1.0f);
  EXPECT_FLOAT_EQ(scaling().magnitude, 1.138629436f);
}

TEST_F(YarnConfig, AFactorBelowOneDoesNotShrinkTheMagnitude) {
  set("factor", 0.5f);
  EXPECT_EQ(scaling().magnitude, 1.0f);
}

}  // namespace
}  // namespace minfer
