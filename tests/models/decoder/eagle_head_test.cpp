// EAGLE-3 heads in files: keys, tensors and what a model makes of them, and refusals of heads that do not fit their model.
#include "models/decoder/config/eagle_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "models/decoder/weights/weights.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using test::ModelParts;
using test::tiny_model;
using ::testing::HasSubstr;

std::vector<std::byte> i64_bytes(const std::vector<int64_t>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

/// A head of hidden size 16 for tiny_model(), which drafts tokens 2, 7 and 5.
ModelParts tiny_head() {
  ModelParts head = tiny_model();
  const auto vocabulary = head.tensors["token_embd.weight"].dims[1];
  std::erase_if(head.keys, [](const auto& entry) { return entry.first.starts_with("llama."); });
  head.tensors.clear();
  head.keys["general.architecture"] = std::string("eagle3");
  for (const auto& [key, value] : std::map<std::string, uint32_t>{{"block_count", 1},
                                                                  {"context_length", 64},
                                                                  {"embedding_length", 16},
                                                                  {"feed_forward_length", 24},
                                                                  {"attention.head_count", 2},
                                                                  {"attention.head_count_kv", 1},
                                                                  {"attention.key_length", 8},
                                                                  {"attention.value_length", 8},
                                                                  {"rope.dimension_count", 8},
                                                                  {"target_hidden_size", 32}})
    head.keys["eagle3." + key] = value;
  head.keys["eagle3.attention.layer_norm_rms_epsilon"] = 1e-5f;
  head.keys["eagle3.target_layers"] = std::vector<int32_t>{0, 1, 2};
  const auto add = [&](const std::string& name, std::vector<uint64_t> dims) {
    head.tensors[name + ".weight"] = {DType::f32, std::move(dims), {}};
  };
  add("token_embd", {16, vocabulary});
  add("fc", {96, 16});
  for (const char* const norm : {"output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm"})
    add(norm, {16});
  add("blk.0.attn_q", {32, 16});
  add("blk.0.attn_k", {32, 8});
  add("blk.0.attn_v", {32, 8});
  add("blk.0.attn_output", {16, 16});
  add("blk.0.ffn_gate", {16, 24});
  add("blk.0.ffn_up", {16, 24});
  add("blk.0.ffn_down", {24, 16});
  add("output", {16, 3});
  head.tensors["d2t"] = {DType::i64, {3}, i64_bytes({2, 7, 5})};
  return head;
}

/// A model with a head, loaded on the CPU.
class LoadedHead {
 public:
  explicit LoadedHead(const ModelParts& head = tiny_head(), const ModelParts& target = tiny_model()) {
    target.builder().write(dir_.path() / "model.gguf");
    head.builder().write(dir_.path() / "head.gguf");
    source_ = open_model_with_head(dir_.path() / "model.gguf", dir_.path() / "head.gguf");
    weights_ = load_weights(*source_, *backend_);
  }

  const ModelConfig& config() const { return source_->config(); }
  const ModelWeights& weights() const { return weights_; }

 private:
  test::TemporaryDirectory dir_;
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  std::unique_ptr<ModelSource> source_;
  ModelWeights weights_;
};

std::string head_refusal(const ModelParts& head, const ModelParts& target = tiny_model()) {
  return test::refusal_of<FileError>([&] { LoadedHead(head, target); });
}

TEST(EagleHeads, AreTheLayerForDrafts) {
  ModelParts parts = tiny_head();
  parts.keys["eagle3.norm_before_residual"] = true;
  const LoadedHead loaded(parts);
  const ModelConfig& config = loaded.config();
  ASSERT_TRUE(config.has_draft_layer && config.eagle);
  EXPECT_EQ(config.num_all_layers(), 3);
  EXPECT_EQ(config.heads(2).kv_heads, 1);
  EXPECT_EQ(config.kv_size(2), 8);
  const EagleHead& head = *config.eagle;
  EXPECT_EQ(head.target_layers, (std::array<int32_t, 3>{0, 1, 2}));
  EXPECT_EQ(head.config.vocab_size, 3);
  EXPECT_EQ(head.target_vocab_size, config.vocab_size);
  EXPECT_TRUE(head.norms_residual);
  EXPECT_FALSE(head.norms_features);
  const std::vector<float> first(head.columns.begin(), head.columns.begin() + 9);
  EXPECT_EQ(first, (std::vector<float>{-1, -1, 0, -1, -1, 2, -1, 1, -1}));
  const EagleWeights& weights = *loaded.weights().eagle;
  EXPECT_EQ(weights.model.layers.size(), 1u);
  EXPECT_EQ(weights.model.output.rows, 3);
  EXPECT_EQ(weights.columns.cols, config.vocab_size);
  EXPECT_FALSE(weights.features_norm);
  EXPECT_EQ(attention_kinds_of(config, 64).back(), (AttentionKind{1, 8, AttentionWindow(0, false, 1), 2}));
}

TEST(EagleHeads, TakeTheModelsTablesWhereTheyHaveNone) {
  ModelParts parts = tiny_head();
  parts.keys["eagle3.embedding_length"] = 32u;
  parts.keys["eagle3.norm_before_fc"] = true;
  const auto resize = [&](const std::string& name, std::vector<uint64_t> dims) {
    parts.tensors[name + ".weight"] = {DType::f32, std::move(dims), {}};
  };
  for (const char* const name : {"token_embd.weight", "output.weight", "d2t"})
    parts.tensors.erase(name);
  resize("enc.output_norm", {96});
  resize("fc", {96, 32});
  for (const char* const norm : {"output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm"})
    resize(norm, {32});
  resize("blk.0.attn_q", {64, 16});
  resize("blk.0.attn_k", {64, 8});
  resize("blk.0.attn_v", {64, 8});
  resize("blk.0.attn_output", {16, 32});
  resize("blk.0.ffn_gate", {32, 24});
  resize("blk.0.ffn_up", {32, 24});
  resize("blk.0.ffn_down", {24, 32});
  const LoadedHead loaded(parts);
  const ModelWeights &target = loaded.weights(), &head = target.eagle->model;
  EXPECT_EQ(head.embedding.data, target.embedding.data);
  EXPECT_EQ(head.output.data, target.output.data);
  EXPECT_FALSE(target.eagle->columns);
  EXPECT_TRUE(target.eagle->features_norm);
}

TEST(EagleHeads, AreRefusedByKey) {
  const auto with = [](const std::string& key, const ModelParts::Value& value) {
    ModelParts head = tiny_head();
    head.keys[key] = value;
    return head_refusal(head);
  };
  EXPECT_THAT(with("general.architecture", std::string("llama")),
              HasSubstr("general.architecture is llama, expected eagle3"));
  EXPECT_THAT(with("eagle3.block_count", 2u), HasSubstr("eagle3.block_count"));
  EXPECT_THAT(with("eagle3.target_hidden_size", 48u),
              HasSubstr("eagle3.target_hidden_size is 48, expected 32, embedding_length of the model"));
  EXPECT_THAT(with("eagle3.target_layers", std::vector<int32_t>{0, 1}),
              HasSubstr("eagle3.target_layers has 2 elements, expected 3"));
  for (const int32_t layer : {-1, 3}) {
    EXPECT_THAT(with("eagle3.target_layers", std::vector<int32_t>{0, 1, layer}),
                HasSubstr(fmt::format("eagle3.target_layers has layer {}, expected 0 to 2", layer)));
  }
  ModelParts head = tiny_head();
  head.keys.erase("eagle3.target_layers");
  EXPECT_THAT(head_refusal(head), HasSubstr("eagle3.target_layers has 0 elements"));
  head = tiny_head();
  std::get<std::vector<std::string>>(head.keys["tokenizer.ggml.tokens"]).pop_back();
  head.tensors["token_embd.weight"].dims[1] -= 1;
  EXPECT_THAT(head_refusal(head), HasSubstr("tokens, expected"));
  EXPECT_THAT(head_refusal(tiny_head(), tiny_model("deepseek2")), HasSubstr("attention is latent"));
}

TEST(EagleHeads, AreRefusedByTensor) {
  for (const auto& [name, tensor] : tiny_head().tensors) {
    if (name == "d2t") continue;
    ModelParts head = tiny_head();
    head.tensors.erase(name);
    EXPECT_THAT(head_refusal(head), HasSubstr(fmt::format("tensor {} is missing", name)));
    head = tiny_head();
    head.tensors[name].dims.front() += 1;
    EXPECT_THAT(head_refusal(head), HasSubstr(fmt::format("head.gguf: tensor {}: shape", name)));
  }
  ModelParts head = tiny_head();
  head.tensors["blk.0.other.weight"] = {DType::f32, {16}, {}};
  EXPECT_THAT(head_refusal(head),
              HasSubstr("head.gguf: tensor blk.0.other.weight is not part of architecture eagle3"));
  ModelParts target = tiny_model();
  target.tensors["eagle3.fc.weight"] = {DType::f32, {16}, {}};
  const std::vector<std::byte> bytes = target.build();
  const auto backend = make_cpu_backend(1);
  EXPECT_THAT(
      test::refusal_of<FileError>([&] { load_weights(*open_model_in_memory(bytes, "a model"), *backend); }),
      HasSubstr("tensor eagle3.fc.weight is not part of architecture llama"));
}

TEST(EagleHeads, TokensThatAreNoneOfTheModelsAreRefused) {
  const auto with = [](ModelParts::TensorPart tokens) {
    ModelParts head = tiny_head();
    head.tensors["d2t"] = std::move(tokens);
    return head_refusal(head);
  };
  const int32_t vocabulary = LoadedHead().config().vocab_size;
  for (const int64_t token : {int64_t{-1}, int64_t{vocabulary}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(with({DType::i64, {3}, i64_bytes({2, token, 5})}),
                HasSubstr(fmt::format("tensor d2t: element 1 is token {}, expected one of the model's {}",
                                      token, vocabulary)));
  }
  EXPECT_THAT(with({DType::i64, {3}, i64_bytes({2, 7, 2})}), HasSubstr("elements 0 and 2 are token 2"));
  EXPECT_THAT(with({DType::i64, {1, 3}, i64_bytes({2, 7, 5})}), HasSubstr("expected a vector of i64"));
  EXPECT_THAT(with({DType::f32, {3}, {}}),
              HasSubstr("tensor d2t: f32 of shape [3], expected a vector of i64"));
  EXPECT_THAT(with({DType::i64, {4}, i64_bytes({2, 7, 5, 9})}),
              HasSubstr("tensor output.weight: shape [3, 16], expected [4, 16]"));
}

TEST(EagleHeads, AreNoModels) {
  const std::vector<std::byte> head = tiny_head().build();
  EXPECT_THAT(test::refusal_of<FileError>([&] { open_model_in_memory(head, "a head"); }),
              HasSubstr("expected as --speculative-model"));
  ModelParts model = tiny_model();
  model.tensors["output.weight"] = {DType::i64, {3}, i64_bytes({2, 7, 5})};
  const std::vector<std::byte> bytes = model.build();
  EXPECT_THAT(test::refusal_of<FileError>([&] { open_model_in_memory(bytes, "a model"); }),
              HasSubstr("tensor output.weight: type i64, expected a type of weights"));
}

}  // namespace
}  // namespace minfer
