// The configuration that read_config makes from a file's metadata, and its refusals.
#include "models/decoder/config/config.h"

#include <cmath>
#include <limits>

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
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ReadConfig, TakesEveryField) {
  ModelParts model = tiny_model("llama", 4);
  model.keys["general.name"] = std::string("a name");
  model.keys["llama.attention.key_length"] = 16u;
  model.keys["llama.attention.value_length"] = 16u;
  model.keys["llama.rope.dimension_count"] = 12u;
  model.keys["llama.rope.freq_base"] = 5e5f;
  const ModelConfig config = config_of(model);
  EXPECT_EQ(config.name, "a name");
  EXPECT_EQ(config.architecture.name, "llama");
  EXPECT_EQ(config.vocab_size, static_cast<int32_t>(model.tensors["token_embd.weight"].dims[1]));
  EXPECT_EQ(config.context_length, 64);
  EXPECT_EQ(config.hidden_size, 32);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_size, 16);
  EXPECT_EQ(config.rotary_size, 12);
  EXPECT_EQ(config.ffn_size, 0) << "no layer is dense";
  EXPECT_EQ(config.expert_ffn_size, 64);
  EXPECT_EQ(config.num_experts, 4);
  EXPECT_EQ(config.num_experts_used, 2);
  EXPECT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(config.ropes.at(0).base, 5e5f);
  EXPECT_EQ(config.qkv_size(), 4 * 16 + 2 * 2 * 16);
}

TEST(ReadConfig, FillsInWhatFilesLeaveOut) {
  ModelParts model = tiny_model();
  model.keys.erase("llama.attention.head_count_kv");
  const ModelConfig config = config_of(model);
  EXPECT_EQ(config.name, "model.gguf");
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_size, 8);
  EXPECT_EQ(config.rotary_size, 8);
  EXPECT_EQ(config.ropes.at(0).base, 10000.0f);
  EXPECT_EQ(config.num_experts, 0);
}

TEST(ReadConfig, NamesEachMissingKey) {
  for (const char* key :
       {"llama.context_length", "llama.embedding_length", "llama.block_count", "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon", "llama.feed_forward_length", "general.architecture"}) {
    ModelParts model = tiny_model();
    model.keys.erase(key);
    EXPECT_THAT(refusal(model), AllOf(HasSubstr("model.gguf"), HasSubstr(key), HasSubstr("missing"))) << key;
  }
  ModelParts model = tiny_model();
  model.keys.erase("tokenizer.ggml.tokens");
  EXPECT_THAT(refusal(model), HasSubstr("key llama.vocab_size is missing"));
}

TEST(ReadConfig, RefusesEachIntegerOutOfRangeOrOfAnotherType) {
  const std::vector<ModelParts::Value> bad{0u,         -1,   uint64_t{1} << 32, INT64_MAX, INT64_MIN,
                                           UINT64_MAX, 1.5f, std::string("4"),  true};
  for (const char* key : {"context_length", "embedding_length", "block_count", "attention.head_count",
                          "attention.head_count_kv", "attention.key_length", "attention.value_length",
                          "feed_forward_length", "expert_used_count", "rope.dimension_count"}) {
    const std::string full = fmt::format("llama.{}", key);
    for (size_t i = 0; i < bad.size(); ++i)
      EXPECT_THAT(refusal(with(full, bad[i], tiny_model("llama", 4))), HasSubstr(full)) << "value " << i;
  }
  for (const ModelParts::Value& value : {ModelParts::Value(-1), ModelParts::Value(INT64_MAX)}) {
    EXPECT_THAT(refusal(with("llama.expert_count", value)), HasSubstr("llama.expert_count"));
    EXPECT_THAT(refusal(with("llama.attention.sliding_window", value)),
                HasSubstr("llama.attention.sliding_window"));
  }
}

TEST(ReadConfig, RefusesEachNumberOutOfRangeOrOfAnotherType) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<ModelParts::Value> bad{
      0.0f,   -1.0f, infinity, -infinity,       std::numeric_limits<float>::quiet_NaN(),
      1e-40f, 1e30f, 1u,       std::string("1")};
  ModelParts yarn = with("llama.rope.scaling.type", std::string("yarn"));
  yarn.keys["llama.rope.scaling.factor"] = 4.0f;
  for (const char* key :
       {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base", "llama.rope.scaling.factor",
        "llama.rope.scaling.attn_factor", "llama.rope.scaling.yarn_attn_factor",
        "llama.rope.scaling.yarn_beta_fast", "llama.rope.scaling.yarn_beta_slow"}) {
    for (size_t i = 0; i < bad.size(); ++i)
      EXPECT_THAT(refusal(with(key, bad[i], yarn)), HasSubstr(key)) << "value " << i;
  }
  EXPECT_EQ(refusal(with("llama.rope.freq_base", 1.001f)), "") << "as a float less than as a double";
  EXPECT_THAT(refusal(with("llama.rope.freq_base", 1.0f)), HasSubstr("llama.rope.freq_base is 1"));
}

TEST(ReadConfig, RefusesWhatContradictsItself) {
  EXPECT_THAT(refusal(with("llama.attention.head_count_kv", 3u)),
              HasSubstr("llama.attention.head_count is 4, expected a multiple of "
                        "llama.attention.head_count_kv = 3"));
  EXPECT_THAT(refusal(with("llama.attention.head_count_kv", 8u)), HasSubstr("expected a multiple"));
  EXPECT_THAT(refusal(with("llama.attention.head_count", 64u)), HasSubstr("llama.attention.key_length is 0"));
  EXPECT_THAT(refusal(with("llama.attention.value_length", 4u)), HasSubstr("llama.attention.value_length"));
  EXPECT_THAT(refusal(with("llama.rope.dimension_count", 7u)),
              HasSubstr("llama.rope.dimension_count is 7, expected an even number up to the head size 8"));
  EXPECT_THAT(refusal(with("llama.rope.dimension_count", 10u)), HasSubstr("expected an even number"));
  EXPECT_THAT(refusal(with("llama.expert_used_count", 5u, tiny_model("llama", 4))),
              HasSubstr("llama.expert_used_count is 5, expected 1 to 4"));
  EXPECT_THAT(refusal(with("llama.expert_count", 4u)), HasSubstr("llama.expert_used_count is missing"));
}

TEST(ReadConfig, KnowsWhichFamiliesHaveExperts) {
  EXPECT_THAT(refusal(with("qwen3.expert_count", 4u, tiny_model("qwen3"))),
              HasSubstr("qwen3.expert_count is 4, expected none of architecture qwen3"));
  EXPECT_THAT(refusal(tiny_model("qwen3moe")),
              HasSubstr("qwen3moe.expert_count is 0, expected at least 1 of architecture qwen3moe"));
  ModelParts model = tiny_model("qwen3moe", 4);
  model.keys["qwen3moe.feed_forward_length"] = 192u;
  EXPECT_EQ(config_of(model).expert_ffn_size, 64);
  EXPECT_EQ(config_of(model).ffn_size, 0) << "no layer is dense";
  model.keys.erase("qwen3moe.expert_feed_forward_length");
  EXPECT_THAT(refusal(model), HasSubstr("qwen3moe.expert_feed_forward_length is missing"));
}

TEST(ReadConfig, TakesArraysWhoseLayersAreAlike) {
  for (const char* key : {"llama.attention.head_count_kv", "llama.feed_forward_length"}) {
    const int32_t value = std::string_view(key).ends_with("kv") ? 2 : 64;
    EXPECT_EQ(refusal(with(key, std::vector<int32_t>{value, value})), "");
    EXPECT_THAT(refusal(with(key, std::vector<int32_t>{value})),
                HasSubstr("has 1 elements, expected one for each of 2 layers"));
    EXPECT_THAT(refusal(with(key, std::vector<int32_t>{})), HasSubstr("has 0 elements"));
    EXPECT_THAT(refusal(with(key, std::vector<int32_t>{-1, -1})), HasSubstr("is -1"));
    EXPECT_THAT(refusal(with(key, std::vector<float>{2.0f, 2.0f})), HasSubstr(key));
  }
  for (const char* key : {"llama.attention.head_count", "llama.feed_forward_length"}) {
    EXPECT_THAT(refusal(with(key, std::vector<int32_t>{4, 8})),
                HasSubstr(fmt::format("{} differs between layers (4 and 8)", key)));
  }
  EXPECT_EQ(config_of(with("llama.attention.head_count", std::vector<int32_t>{4, 4})).num_heads, 4);
  EXPECT_THAT(refusal(with("llama.block_count", std::vector<int32_t>{2, 2})), HasSubstr("llama.block_count"));
}

TEST(ReadConfig, NamesAnUnknownArchitectureAndTheKnownOnes) {
  for (const char* name : {"mistral5", "mixtral", "gemma5", "grok", "", "Llama"}) {
    EXPECT_THAT(refusal(with("general.architecture", std::string(name))),
                HasSubstr(fmt::format(
                    "architecture \"{}\" is not supported; known ones: llama, qwen2, qwen3, "
                    "qwen3moe, olmoe, qwen2moe, gpt-oss, glm4moe, granitemoe, gemma, gemma2, "
                    "gemma3, gemma3n, gemma4, phi3, smollm3, olmo2, granite, glm4, command-r, "
                    "cohere2, cohere2moe, starcoder2, stablelm, internlm2, ernie4_5, ernie4_5-moe, mistral3, "
                    "minimax-m2, exaone4, exaone-moe, dots1, qwen2vl, qwen3vl, qwen3vlmoe, hunyuan-dense, "
                    "hunyuan-moe, bailingmoe, bailingmoe2, seed_oss, deepseek2, deepseek32, glm-dsa, "
                    "mistral4, llama4, "
                    "qwen3next, qwen35, qwen35moe, lfm2, lfm2moe, granitehybrid, nemotron_h, "
                    "nemotron_h_moe, kimi-linear, apertus",
                    name)));
  }
  EXPECT_THAT(refusal(with("general.architecture", std::string("\x1b[31mx"))), Not(HasSubstr("\x1b")));
}

TEST(ReadConfig, VocabularyAndEmbeddingsMustAgree) {
  ModelParts model = tiny_model();
  model.tensors["token_embd.weight"].dims[1] += 1;
  EXPECT_THAT(refusal(model), AllOf(HasSubstr("tensor token_embd.weight: shape ["),
                                    HasSubstr("rows from tokenizer.ggml.tokens")));
  model = with("tokenizer.ggml.tokens", std::vector<std::string>{});
  EXPECT_THAT(refusal(model), HasSubstr("tokenizer.ggml.tokens has 0 elements"));
}

std::vector<int32_t> windows(const ModelConfig& config) {
  std::vector<int32_t> of_layers;
  for (const LayerConfig& layer : config.layers)
    of_layers.push_back(layer.window.keys);
  return of_layers;
}

TEST(SlidingWindow, IsThatOfEveryLayerOfMistralAndMeansNothingOfQwen) {
  EXPECT_EQ(windows(config_of(with("llama.attention.sliding_window", 16u))), (std::vector{16, 16}));
  EXPECT_EQ(windows(config_of(with("llama.attention.sliding_window", 0u))), (std::vector{0, 0}));
  EXPECT_EQ(config_of(with("llama.attention.sliding_window", 16u)).context_length, 64);
  for (const char* name : {"qwen2", "qwen3"}) {
    const ModelParts model = with(fmt::format("{}.attention.sliding_window", name), 16u, tiny_model(name));
    EXPECT_EQ(windows(config_of(model)), (std::vector{0, 0})) << name;
  }
}

TEST(SlidingWindow, OfAFamilyOrOfTheFileSaysWhichLayersHaveIt) {
  ModelParts model = with("gemma2.attention.sliding_window", 16u, tiny_model("gemma2"));
  EXPECT_EQ(windows(config_of(model)), (std::vector{16, 0}));
  model.keys["gemma2.attention.sliding_window_pattern"] = std::vector<int32_t>{0, 1};
  EXPECT_EQ(windows(config_of(model)), (std::vector{0, 16}));
  model.keys["gemma2.attention.sliding_window_pattern"] = 3u;
  EXPECT_EQ(windows(config_of(model)), (std::vector{16, 16}));
  for (const ModelParts::Value& bad :
       {ModelParts::Value(1u), ModelParts::Value(std::vector<int32_t>{1}),
        ModelParts::Value(std::vector<int32_t>{1, 2}), ModelParts::Value(1.5f)}) {
    model.keys["gemma2.attention.sliding_window_pattern"] = bad;
    EXPECT_THAT(refusal(model), HasSubstr("gemma2.attention.sliding_window_pattern"));
  }
  model = tiny_model("cohere2");
  model.keys.erase("cohere2.attention.sliding_window");
  EXPECT_THAT(refusal(model), HasSubstr("key cohere2.attention.sliding_window is missing"));
}

TEST(SlidingWindow, OfGemma2And3WithoutTheKey) {
  ModelParts gemma2 = tiny_model("gemma2"), gemma3 = tiny_model("gemma3");
  for (ModelParts* model : {&gemma2, &gemma3}) {
    for (const char* key : {"gemma2.attention.sliding_window", "gemma3.attention.sliding_window"})
      model->keys.erase(key);
  }
  EXPECT_EQ(config_of(gemma2).layer(0).window.keys, 4096) << "Google's models have it";
  const ModelConfig config = config_of(gemma3);
  EXPECT_EQ(config.ropes.size(), 1U);
  for (const LayerConfig& layer : config.layers)
    EXPECT_FALSE(layer.window) << "models trained without, as Rnj-1";
}

TEST(SlidingWindow, OneThatHoldsTheContextIsNone) {
  const ModelConfig config = config_of(with("llama.attention.sliding_window", 16u));
  EXPECT_EQ(windows_of(config, 17), std::vector<AttentionWindow>{16});
  EXPECT_EQ(windows_of(config, 16), std::vector<AttentionWindow>{});
}

TEST(RopeOfLayers, ThoseWithAWindowMayHaveTheirOwn) {
  ModelParts model = tiny_model("gemma3");
  model.keys["gemma3.attention.sliding_window_pattern"] = std::vector<int32_t>{1, 0};
  model.keys["gemma3.rope.freq_base"] = 1e6f;
  model.keys["gemma3.rope.scaling.factor"] = 8.0f;
  ModelConfig config = config_of(model);
  ASSERT_EQ(config.ropes.size(), 2u);
  EXPECT_EQ(config.layers[0].rope, 1);
  EXPECT_EQ(config.layers[1].rope, 0);
  EXPECT_EQ(config.ropes[0].base, 1e6f);
  EXPECT_EQ(config.ropes[0].scaling.factor, 8.0f);
  EXPECT_EQ(config.ropes[1].base, 1e4f);
  EXPECT_EQ(config.ropes[1].scaling.kind, RopeScaling::Kind::none);
  model.keys["gemma3.rope.freq_base_swa"] = 500.0f;
  EXPECT_EQ(config_of(model).ropes[1].base, 500.0f);
  model.keys["gemma3.rope.freq_base_swa"] = 1.0f;
  EXPECT_THAT(refusal(model), HasSubstr("gemma3.rope.freq_base_swa is 1"));
}

TEST(Scales, AreThoseOfALlamaWithoutKeys) {
  const ModelConfig config = config_of(tiny_model());
  EXPECT_EQ(config.attention_scale, 1.0f / std::sqrt(8.0f));
  EXPECT_EQ(config.embedding_scale, 1.0f);
  EXPECT_EQ(config.residual_scale, 1.0f);
  EXPECT_EQ(config.logit_scale, 1.0f);
  EXPECT_EQ(config.attention_cap, 0.0f);
  EXPECT_EQ(config.logit_cap, 0.0f);
}

TEST(Scales, AreReadAndRefusedOutOfRange) {
  const std::vector<ModelParts::Value> bad{-1.0f, std::numeric_limits<float>::infinity(),
                                           std::numeric_limits<float>::quiet_NaN(), 1u, std::string("1")};
  for (const char* key :
       {"llama.attention.scale", "llama.embedding_scale", "llama.residual_scale", "llama.logit_scale",
        "llama.attn_logit_softcapping", "llama.final_logit_softcapping"}) {
    for (size_t i = 0; i < bad.size(); ++i)
      EXPECT_THAT(refusal(with(key, bad[i])), HasSubstr(key)) << "value " << i;
    EXPECT_EQ(refusal(with(key, 0.5f)), "");
  }
  EXPECT_EQ(config_of(with("llama.attention.scale", 0.5f)).attention_scale, 0.5f);
  EXPECT_EQ(config_of(with("llama.embedding_scale", 12.0f)).embedding_scale, 12.0f);
  EXPECT_EQ(config_of(with("llama.residual_scale", 0.25f)).residual_scale, 0.25f);
  EXPECT_EQ(config_of(with("llama.logit_scale", 0.25f)).logit_scale, 0.25f);
  EXPECT_EQ(config_of(with("llama.attn_logit_softcapping", 50.0f)).attention_cap, 50.0f);
  EXPECT_EQ(config_of(with("llama.final_logit_softcapping", 30.0f)).logit_cap, 30.0f);
}

TEST(Scales, GemmaScalesEmbeddingsAndIn27BQueriesByItself) {
  EXPECT_EQ(config_of(tiny_model("gemma3")).embedding_scale, std::sqrt(32.0f));
  ModelParts model = with("gemma2.attention.key_length", 16u, tiny_model("gemma2"));
  model.keys["gemma2.attention.value_length"] = 16u;
  EXPECT_EQ(config_of(model).attention_scale, 0.25f);
  model.keys["gemma2.block_count"] = 46u;
  EXPECT_EQ(config_of(model).attention_scale, 1.0f / std::sqrt(8.0f));
}

TEST(RopeScaling, IsLinearWhereAFactorStandsAlone) {
  EXPECT_EQ(config_of(tiny_model()).ropes.at(0).scaling.kind, RopeScaling::Kind::none);
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    const RopeScaling scaling = config_of(with(key, 4.0f)).ropes.at(0).scaling;
    EXPECT_EQ(scaling.kind, RopeScaling::Kind::linear) << key;
    EXPECT_EQ(scaling.factor, 4.0f) << key;
  }
  ModelParts model = with("llama.rope.scaling.factor", 4.0f);
  model.keys["llama.rope.scaling.type"] = std::string("none");
  EXPECT_EQ(config_of(model).ropes.at(0).scaling.kind, RopeScaling::Kind::none);
  EXPECT_THAT(refusal(with("llama.rope.scaling.type", std::string("longrope"))),
              HasSubstr("llama.rope.scaling.type is \"longrope\", expected none, linear or yarn"));
}

TEST(RopeScaling, AttnFactorIsTheMagnitudeWithoutYarnToo) {
  EXPECT_EQ(config_of(with("llama.rope.scaling.attn_factor", 1.5f)).ropes.at(0).scaling.magnitude, 1.5f);
}

/// Converters store rows of q and k for halves if pairs rotate by time, height and width.
TEST(RopePairs, OfGlm4AreHalvesWithSections) {
  const auto pairing = [](const std::vector<int32_t>& sections) {
    return config_of(with("glm4.rope.dimension_sections", sections, tiny_model("glm4")))
        .architecture.rope_pairing;
  };
  EXPECT_EQ(config_of(tiny_model("glm4")).architecture.rope_pairing, RopePairing::interleaved);
  EXPECT_EQ(pairing({8, 12, 12, 0}), RopePairing::halves);
  EXPECT_EQ(pairing({8, 0, 0, 0}), RopePairing::interleaved) << "no section of heights";
  EXPECT_EQ(pairing({8}), RopePairing::interleaved);
  EXPECT_EQ(config_of(with("ernie4_5.rope.dimension_sections", std::vector<int32_t>{8, 12, 12, 0},
                           tiny_model("ernie4_5")))
                .architecture.rope_pairing,
            RopePairing::interleaved)
      << "whose rows are stored as ever";
}

TEST(RefusedKeys, AreThoseThatChangeResults) {
  EXPECT_EQ(refusal(with("qwen2.attention.causal", true, tiny_model("qwen2"))), "");
  EXPECT_THAT(refusal(with("qwen2.attention.causal", false, tiny_model("qwen2"))),
              HasSubstr("qwen2.attention.causal is false: attention to later tokens is not supported"));
  EXPECT_THAT(refusal(with("llama.attention.temperature_scale", 0.1f)),
              HasSubstr("llama.attention.temperature_scale: not supported with architecture llama"));
  EXPECT_EQ(refusal(with("cohere2.rope.freq_base_swa", 10000.0f, tiny_model("cohere2"))), "");
  EXPECT_THAT(refusal(with("cohere2.rope.freq_base_swa", 500.0f, tiny_model("cohere2"))),
              HasSubstr("cohere2.rope.freq_base_swa is 500, expected 10000, the base of all layers"));
}

TEST(LongRope, HasItsContextAndMagnitudeWhereTheFactorsAre) {
  ModelParts model = tiny_model("phi3");
  const auto add = [&model](const char* name) { model.tensors[name] = {DType::f32, {4}, {}}; };
  add("rope_factors_long.weight");
  add("rope_factors_short.weight");
  EXPECT_THAT(refusal(model), HasSubstr("key phi3.rope.scaling.original_context_length is missing"));
  model.keys["phi3.rope.scaling.original_context_length"] = 16u;
  EXPECT_EQ(config_of(model).ropes[0].scaling.magnitude, 1.0f);
  model.keys["phi3.rope.scaling.attn_factor"] = 1.25f;
  const RopeScaling scaling = config_of(model).ropes[0].scaling;
  EXPECT_EQ(scaling.kind, RopeScaling::Kind::long_rope);
  EXPECT_EQ(scaling.original_context, 16);
  EXPECT_EQ(scaling.magnitude, 1.25f);
  model.keys["phi3.rope.scaling.attn_factor"] = -1.0f;
  EXPECT_THAT(refusal(model), HasSubstr("phi3.rope.scaling.attn_factor is -1"));
  model.keys["phi3.rope.scaling.original_context_length"] = 0u;
  EXPECT_THAT(refusal(model), HasSubstr("phi3.rope.scaling.original_context_length is 0"));
}

TEST(Xielu, HasNumbersOfEachLayer) {
  ModelParts model = tiny_model("apertus");
  const ModelConfig config = config_of(model);
  ASSERT_EQ(config.activations.size(), 2u);
  EXPECT_NEAR(config.activations[1].positive, std::log1p(std::exp(0.9)), 1e-6);
  EXPECT_NEAR(config.activations[0].negative, 0.5 + std::log1p(std::exp(0.7)), 1e-6);
  EXPECT_EQ(config.activations[0].linear, 0.5f);
  EXPECT_EQ(config.activations[0].eps, -1e-6f);
  for (const char* key : {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"}) {
    EXPECT_EQ(refusal(with(key, 0.5f, model)), "") << "one for all";
    for (const ModelParts::Value& bad :
         {ModelParts::Value(std::vector<float>{1.0f}), ModelParts::Value(std::vector<float>{1.0f, 1e30f}),
          ModelParts::Value(std::vector<float>{1.0f, std::nanf("")}), ModelParts::Value(std::string("1")),
          ModelParts::Value(3u)})
      EXPECT_THAT(refusal(with(key, bad, model)), HasSubstr(key));
    ModelParts without = model;
    without.keys.erase(key);
    EXPECT_THAT(refusal(without), HasSubstr(fmt::format("key {} is missing", key)));
  }
}

TEST(LayerNorm, HasItsOwnEpsilon) {
  ModelParts model = with("command-r.attention.layer_norm_epsilon", 1e-4f, tiny_model("command-r"));
  EXPECT_EQ(config_of(model).norm_eps, 1e-4f);
  model.keys.erase("command-r.attention.layer_norm_epsilon");
  EXPECT_THAT(refusal(model), HasSubstr("key command-r.attention.layer_norm_epsilon is missing"));
}

TEST(LayerNorm, IsAnRmsNormInFilesOfCohereThatSaySo) {
  ModelParts model = with("cohere2moe.attention.layer_norm_epsilon", 1e-4f, tiny_model("cohere2moe", 4));
  EXPECT_EQ(config_of(model).architecture.norm, NormKind::rms);
  EXPECT_EQ(config_of(model).norm_eps, 1e-5f);
  model.keys.erase("cohere2moe.attention.layer_norm_rms_epsilon");
  EXPECT_EQ(config_of(model).architecture.norm, NormKind::layer);
  EXPECT_EQ(config_of(model).norm_eps, 1e-4f);
}

TEST(ParallelBlocks, OfStableLmAreThoseWithoutTheOtherNorm) {
  ModelParts model = tiny_model("stablelm");
  EXPECT_FALSE(config_of(model).parallel_blocks);
  model.tensors.erase("blk.0.ffn_norm.weight");
  EXPECT_TRUE(config_of(model).parallel_blocks);
  EXPECT_TRUE(config_of(tiny_model("command-r")).parallel_blocks);
}

TEST(RopeOfLayers, SomeFamiliesHaveLayersWithout) {
  ModelParts model = tiny_model("smollm3");
  model.keys["smollm3.block_count"] = 5u;
  std::vector<int32_t> tables;
  for (const LayerConfig& layer : config_of(model).layers)
    tables.push_back(layer.rope);
  EXPECT_EQ(tables, (std::vector{0, 0, 0, LayerConfig::kNoRope, 0}));
  model = tiny_model("cohere2");
  model.keys["cohere2.attention.sliding_window_pattern"] = std::vector<int32_t>{0, 1};
  EXPECT_EQ(config_of(model).layers[0], (LayerConfig{.window = 0, .rope = LayerConfig::kNoRope}));
  EXPECT_EQ(config_of(model).layers[1], (LayerConfig{.window = 32, .rope = 0}));
}

TEST(RopeOfLayers, OfGraniteAreNoneWhereTheFileSaysSo) {
  constexpr const char* kKey = "granite.rope.scaling.finetuned";
  EXPECT_EQ(config_of(with(kKey, true, tiny_model("granite"))).layer(1).rope, 0);
  const ModelConfig without = config_of(with(kKey, false, tiny_model("granite")));
  for (const LayerConfig& layer : without.layers)
    EXPECT_EQ(layer.rope, LayerConfig::kNoRope);
  EXPECT_EQ(config_of(with("llama.rope.scaling.finetuned", false)).layer(1).rope, 0)
      << "says nothing of others";
}

TEST(Scales, GraniteDividesByItsLogitScale) {
  EXPECT_EQ(config_of(with("granite.logit_scale", 8.0f, tiny_model("granite"))).logit_scale, 0.125f);
}

}  // namespace
}  // namespace minfer
