// Experts in files: how they are chosen, which layers have them, those that every token takes, biases; and refusals.
#include <bit>
#include <limits>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/decoder/config/config_facts.h"
#include "models/decoder/weights/shard.h"
#include "models/decoder/weights/weights.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::ModelParts;
using test::tiny_model;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

/// A model of two layers with four experts, as a file, as a source and on the CPU.
class ExpertFile {
 public:
  explicit ExpertFile(const ModelParts& model)
      : bytes_(model.build()), source_(open_model_in_memory(bytes_, "model.gguf")) {}

  const ModelConfig& config() const { return source_->config(); }
  const ModelSource& source() const { return *source_; }
  const ModelWeights& weights() {
    weights_ = load_weights(*source_, *backend_);
    return weights_;
  }

 private:
  std::vector<std::byte> bytes_;
  std::unique_ptr<ModelSource> source_;
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  ModelWeights weights_;
};

std::string refusal_of_experts(const ModelParts& model) {
  return test::refusal_of<FileError>([&] { ExpertFile(model).weights(); });
}

ModelParts with_keys(ModelParts model, const std::map<std::string, ModelParts::Value>& keys) {
  for (const auto& [key, value] : keys)
    model.keys[key] = value;
  return model;
}

ModelParts llama_with(const std::map<std::string, ModelParts::Value>& keys) {
  return with_keys(tiny_model("llama", 4), keys);
}

TEST(ExpertChoiceOfAFile, IsTheFamilysWithoutKeys) {
  EXPECT_EQ(ExpertFile(tiny_model("llama", 4)).config().expert_choice, ExpertChoice{});
  EXPECT_FALSE(ExpertFile(tiny_model("olmoe", 4)).config().expert_choice.normalise);
  EXPECT_EQ(ExpertFile(tiny_model("glm4moe", 4)).config().expert_choice.score, ExpertScore::sigmoid);
}

/// GLM-4.7-Flash's files name no function.
TEST(ExpertChoiceOfAFile, IsSigmoidWithABiasOfTheChoice) {
  ModelParts model = tiny_model("deepseek2", 4);
  EXPECT_EQ(ExpertFile(model).config().expert_choice.score, ExpertScore::softmax) << "DeepSeek V2";
  model.tensors["blk.1.exp_probs_b.bias"] = {DType::f32, {4}, {}};
  EXPECT_EQ(ExpertFile(model).config().expert_choice.score, ExpertScore::sigmoid);
  model.keys["deepseek2.expert_gating_func"] = 1u;
  EXPECT_EQ(ExpertFile(model).config().expert_choice.score, ExpertScore::softmax) << "what the key says";
}

TEST(ExpertChoiceOfAFile, IsWhatItsKeysSay) {
  const ExpertChoice choice = ExpertFile(llama_with({{"llama.expert_gating_func", 2u},
                                                     {"llama.expert_weights_norm", false},
                                                     {"llama.expert_weights_scale", 2.5f},
                                                     {"llama.expert_group_count", 2u},
                                                     {"llama.expert_group_used_count", 1u}}))
                                  .config()
                                  .expert_choice;
  EXPECT_EQ(
      choice,
      (ExpertChoice{
          .score = ExpertScore::sigmoid, .normalise = false, .scale = 2.5f, .groups = 2, .groups_used = 1}));
  const auto of_function = [](uint32_t function) {
    return ExpertFile(with_keys(tiny_model("olmoe", 4), {{"olmoe.expert_gating_func", function}}))
        .config()
        .expert_choice;
  };
  EXPECT_EQ(of_function(1), (ExpertChoice{.normalise = false})) << "softmax over all";
  EXPECT_EQ(of_function(3), ExpertChoice{}) << "softmax over those chosen";
}

TEST(ExpertChoiceOfAFile, IsRefusedOutOfRange) {
  const std::vector<ModelParts::Value> bad{-1, INT64_MAX, UINT64_MAX, 1.5f, std::string("1"), 33u};
  for (const char* key :
       {"llama.expert_gating_func", "llama.expert_group_count", "llama.expert_group_used_count",
        "llama.leading_dense_block_count", "llama.nextn_predict_layers"}) {
    for (const ModelParts::Value& value : bad)
      EXPECT_THAT(refusal_of_experts(llama_with({{key, value}})), HasSubstr(key));
  }
  for (const char* key : {"llama.expert_shared_count", "llama.expert_shared_feed_forward_length"}) {
    for (const ModelParts::Value& value : {bad[0], bad[1], bad[2], bad[3], bad[4]})
      EXPECT_THAT(refusal_of_experts(llama_with({{key, value}})), HasSubstr(key));
  }
  for (const ModelParts::Value& value : std::vector<ModelParts::Value>{
           0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 1u})
    EXPECT_THAT(refusal_of_experts(llama_with({{"llama.expert_weights_scale", value}})),
                HasSubstr("llama.expert_weights_scale"));
  EXPECT_THAT(refusal_of_experts(llama_with({{"llama.expert_weights_norm", 1u}})),
              HasSubstr("llama.expert_weights_norm"));
}

TEST(ExpertChoiceOfAFile, GroupsMustBeAlikeAndHaveEnoughExperts) {
  EXPECT_THAT(refusal_of_experts(llama_with({{"llama.expert_group_count", 3u}})),
              HasSubstr("llama.expert_group_count is 3, expected groups of one size, at least 2, of "
                        "llama.expert_count = 4"));
  EXPECT_THAT(refusal_of_experts(llama_with({{"llama.expert_group_count", 4u}})), HasSubstr("at least 2"));
  EXPECT_THAT(refusal_of_experts(llama_with({{"llama.expert_group_count", 2u},
                                             {"llama.expert_group_used_count", 1u},
                                             {"llama.expert_used_count", 3u}})),
              HasSubstr("llama.expert_group_used_count is 1: groups of 2 experts have fewer than "
                        "llama.expert_used_count = 3"));
}

TEST(ExpertLayersOfAFile, MayBeginBehindDenseOnes) {
  ModelParts model =
      llama_with({{"llama.leading_dense_block_count", 1u}, {"llama.feed_forward_length", 64u}});
  for (const char* part : {"gate_inp", "gate_exps", "up_exps", "down_exps"})
    model.tensors.erase(fmt::format("blk.0.ffn_{}.weight", part));
  EXPECT_THAT(refusal_of_experts(model), HasSubstr("tensor blk.0.ffn_gate.weight is missing"));
  model.tensors["blk.0.ffn_gate.weight"] = model.tensors["blk.0.ffn_up.weight"] = {DType::f32, {32, 64}, {}};
  model.tensors["blk.0.ffn_down.weight"] = {DType::f32, {64, 32}, {}};
  ExpertFile file(model);
  EXPECT_EQ(file.config().ffn_size, 64);
  EXPECT_FALSE(file.config().layer(0).has_experts);
  EXPECT_TRUE(file.config().layer(1).has_experts);
  EXPECT_FALSE(file.weights().layers[0].router);
  EXPECT_TRUE(file.weights().layers[1].router);
  model.keys["llama.leading_dense_block_count"] = 2u;
  EXPECT_THAT(refusal_of_experts(model), HasSubstr("llama.leading_dense_block_count is 2, expected 0 to 1"));
}

TEST(SharedExperts, AreAsManyOrAsLargeAsTheFileSays) {
  ModelParts model = llama_with({{"llama.expert_shared_count", 2u}});
  EXPECT_EQ(ExpertFile(model).config().shared_ffn_size, 128);
  EXPECT_THAT(refusal_of_experts(model), HasSubstr("tensor blk.0.ffn_gate_shexp.weight is missing"));
  model.keys["llama.expert_shared_feed_forward_length"] = 48u;
  EXPECT_EQ(ExpertFile(model).config().shared_ffn_size, 48);
  for (const char* blk : {"blk.0.", "blk.1."}) {
    model.tensors[fmt::format("{}ffn_gate_shexp.weight", blk)] = {DType::f32, {32, 48}, {}};
    model.tensors[fmt::format("{}ffn_up_shexp.weight", blk)] = {DType::f32, {32, 48}, {}};
    model.tensors[fmt::format("{}ffn_down_shexp.weight", blk)] = {DType::f32, {48, 32}, {}};
  }
  EXPECT_EQ(ExpertFile(model).weights().layers[1].shared_down.cols, 48);
  model.tensors["blk.1.ffn_up_shexp.weight"].dims = {32, 64};
  EXPECT_THAT(refusal_of_experts(model),
              AllOf(HasSubstr("tensor blk.1.ffn_up_shexp.weight: shape [64, 32], expected [48, 32]"),
                    HasSubstr("llama.expert_shared_feed_forward_length")));
}

TEST(SharedExperts, OfQwen2MoeHaveAGateAndASize) {
  ModelParts model = tiny_model("qwen2moe", 4);
  EXPECT_EQ(ExpertFile(model).weights().layers[0].shared_weight.cols, 32);
  model.tensors.erase("blk.0.ffn_gate_inp_shexp.weight");
  EXPECT_THAT(refusal_of_experts(model), HasSubstr("tensor blk.0.ffn_gate_inp_shexp.weight is missing"));
  model.keys.erase("qwen2moe.expert_shared_feed_forward_length");
  EXPECT_THAT(refusal_of_experts(model),
              HasSubstr("key qwen2moe.expert_shared_feed_forward_length is missing"));
}

TEST(ExpertBiases, AreTakenInAnyPlainTypeAndChecked) {
  ModelParts model = tiny_model("gpt-oss", 4);
  const std::vector<float> values = [] {
    std::vector<float> list;
    for (int i = 0; i < 4 * 64; ++i)
      list.push_back(static_cast<float>(i) / 8.0f);
    return list;
  }();
  test::ByteWriter halves;
  for (const float value : values)
    halves.put(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  model.tensors["blk.1.ffn_gate_inp.bias"] = {DType::f32, {4}, {}};
  model.tensors["blk.1.ffn_up_exps.bias"] = {DType::bf16, {64, 4}, halves.bytes()};
  model.tensors["blk.1.ffn_down_exps.bias"] = {DType::f32, {32, 4}, {}};
  ExpertFile file(model);
  const LayerWeights& layer = file.weights().layers[1];
  EXPECT_TRUE(layer.router_bias && layer.down_bias && !layer.gate_bias);
  EXPECT_EQ(std::vector<float>(static_cast<const float*>(layer.up_bias.data),
                               static_cast<const float*>(layer.up_bias.data) + values.size()),
            values);
  model.tensors["blk.1.ffn_down_exps.bias"].dims = {32, 3};
  EXPECT_THAT(
      refusal_of_experts(model),
      HasSubstr(
          "tensor blk.1.ffn_down_exps.bias: shape [3, 32], expected [4, 32] from gpt-oss.expert_count"));
}

TEST(ExpertBiases, OfSeveralRanksAreShared) {
  const auto model = open_model(source_path("tests/golden/gpt-oss.gguf"));
  const auto backend = make_cpu_backend(1);
  const auto floats = [](const auto& of) { return static_cast<const float*>(of.data); };
  const float* whole = floats(*model->find_tensor("blk.0.ffn_up_exps.bias"));
  const float* sinks = floats(*model->find_tensor("blk.0.attn_sinks.weight"));
  for (const int32_t rank : {0, 1}) {
    const ModelShard shard(*model, {rank, 2});
    const LayerWeights layer = load_weights(shard, *backend).layers[0];
    ASSERT_EQ(layer.up_bias.cols, 16);
    for (int64_t expert = 0; expert < layer.up_bias.rows; ++expert)
      EXPECT_EQ(floats(layer.up_bias)[expert * 16 + 5], whole[expert * 32 + rank * 16 + 5]);
    EXPECT_EQ(static_cast<bool>(layer.down_bias), rank == 0) << "it is added once";
    ASSERT_EQ(layer.sinks.cols, 1);
    EXPECT_EQ(*floats(layer.sinks), sinks[rank]);
  }
}

TEST(NextTokenLayers, AreNotRun) {
  ModelParts model = tiny_model("glm4moe", 4);
  model.keys["glm4moe.block_count"] = 3u;
  EXPECT_THAT(refusal_of_experts(model), HasSubstr("tensor blk.2."));
  model.keys["glm4moe.nextn_predict_layers"] = 1u;
  model.tensors["blk.2.attn_q.weight"] = {DType::f32, {8, 8}, {}};
  model.tensors["blk.2.nextn.eh_proj.weight"] = {DType::f32, {64, 32}, {}};
  ExpertFile file(model);
  EXPECT_EQ(file.config().num_layers, 2);
  EXPECT_EQ(file.weights().layers.size(), 2u);
  EXPECT_EQ(file.source().find_tensor("blk.2.nextn.eh_proj.weight"), nullptr);
  model.tensors["blk.3.attn_q.weight"] = {DType::f32, {8, 8}, {}};
  EXPECT_THAT(refusal_of_experts(model), HasSubstr("tensor blk.3.attn_q.weight is not part of"));
}

TEST(Glm45, HasQkNormsWhereTheFileDoes) {
  ModelParts model = tiny_model("glm4moe", 4);
  EXPECT_EQ(ExpertFile(model).config().architecture.qk_norm, QkNorm::head);
  for (const char* part :
       {"blk.0.attn_q_norm", "blk.0.attn_k_norm", "blk.1.attn_q_norm", "blk.1.attn_k_norm"})
    model.tensors.erase(fmt::format("{}.weight", part));
  EXPECT_EQ(ExpertFile(model).config().architecture.qk_norm, QkNorm::none);
  EXPECT_EQ(refusal_of_experts(model), "");
}

TEST(GptOss, NeedsSinksAndItsWindow) {
  ModelParts model = tiny_model("gpt-oss", 4);
  EXPECT_EQ(ExpertFile(model).weights().layers[0].sinks.cols, 4);
  EXPECT_EQ(ExpertFile(model).config().layer(0).window.keys, 32);
  EXPECT_EQ(ExpertFile(model).config().layer(1).window.keys, 0);
  model.tensors.erase("blk.1.attn_sinks.weight");
  EXPECT_THAT(refusal_of_experts(model), HasSubstr("tensor blk.1.attn_sinks.weight is missing"));
  model.keys.erase("gpt-oss.attention.sliding_window");
  EXPECT_THAT(refusal_of_experts(model), HasSubstr("key gpt-oss.attention.sliding_window is missing"));
}

TEST(ExpertFacts, SayHowExpertsAreChosen) {
  const ModelParts model = with_keys(tiny_model("qwen2moe", 4), {{"qwen2moe.expert_gating_func", 2u},
                                                                 {"qwen2moe.expert_weights_scale", 2.5f},
                                                                 {"qwen2moe.expert_group_count", 2u}});
  std::vector<std::string> facts;
  for (const ConfigFact& fact : config_facts(ExpertFile(model).config()))
    facts.push_back(fmt::format("{}: {}", fact.name, fact.value));
  EXPECT_THAT(facts, Contains("feed-forward: SwiGLU of 64 an expert"));
  EXPECT_THAT(facts, Contains("experts: 2 of 4"));
  EXPECT_THAT(facts, Contains("choice of experts: sigmoid, times 2.5, in 2 of 2 groups by their best 2"));
  EXPECT_THAT(facts, Contains("shared experts: 48 together, gated"));
  const ExpertFile gpt_oss(tiny_model("gpt-oss", 4));
  const std::vector<ConfigFact> of_gpt_oss = config_facts(gpt_oss.config());
  EXPECT_EQ(std::ranges::find(of_gpt_oss, "feed-forward", &ConfigFact::name)->value,
            "clamped SwiGLU of 64 an expert");
}

}  // namespace
}  // namespace minfer
