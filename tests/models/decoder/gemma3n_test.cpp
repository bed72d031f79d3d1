// Gemma 3n in files: residual streams, LAuReL and cut gates; refusals, shares of ranks, and what a profile says of its ops.
#include <limits>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/work.h"
#include "models/decoder/config/config_facts.h"
#include "models/decoder/decoder.h"
#include "models/decoder/weights/shard.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::ModelParts;
using test::tiny_model;
using ::testing::Contains;
using ::testing::HasSubstr;

/// Three streams, LAuReL of rank 5; the first layer has a window and cuts its gates.
ModelParts gemma3n_model() {
  ModelParts model = tiny_model("gemma3n");
  model.keys["gemma3n.attention.sliding_window_pattern"] = std::vector<int32_t>{1, 0};
  return model;
}

struct Gemma3n {
  explicit Gemma3n(const ModelParts& parts)
      : bytes(parts.build()), source(open_model_in_memory(bytes, "model.gguf")) {}
  const ModelConfig& config() const { return source->config(); }

  std::vector<std::byte> bytes;
  std::unique_ptr<ModelSource> source;
};

std::string gemma3n_refusal(const ModelParts& parts) {
  return test::refusal_of<FileError>([&] { load_weights(*Gemma3n(parts).source, *make_cpu_backend(1)); });
}

TEST(Gemma3n, KeysAndTensorsSayItsSizes) {
  const Gemma3n model(gemma3n_model());
  EXPECT_EQ(model.config().num_streams, 3);
  EXPECT_EQ(model.config().laurel_rank, 5);
  EXPECT_EQ(model.config().layer_input_size, 4);
  EXPECT_EQ(model.config().layer(0).gate_cut, 1.25f);
  EXPECT_EQ(model.config().layer(1).gate_cut, std::nullopt);
  EXPECT_EQ(model.config().heads(0).scale, 1.0f) << "scores are not scaled";
  const ModelWeights weights = load_weights(*model.source, *make_cpu_backend(1));
  EXPECT_EQ(weights.to_streams.size(), 2u);
  EXPECT_EQ(weights.from_streams.size(), 2u);
  EXPECT_EQ(weights.layers[0].streams.predict.rows, 9);
  EXPECT_EQ(static_cast<const float*>(weights.to_streams[1].data) -
                static_cast<const float*>(weights.to_streams[0].data),
            32 * 32);
}

TEST(Gemma3n, FactsSayIt) {
  std::vector<std::string> facts;
  for (const ConfigFact& fact : config_facts(Gemma3n(gemma3n_model()).config()))
    facts.push_back(fmt::format("{}: {}", fact.name, fact.value));
  EXPECT_THAT(facts, Contains("residual streams: 3, LAuReL of rank 5"));
  EXPECT_THAT(facts, Contains("gates 1.25 deviations above their mean alone: 0"));
  EXPECT_THAT(facts, Contains("inputs of layers by the token: 4"));
}

TEST(Gemma3n, KeysThatDoNotFitAreRefusedByName) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const auto& [key, value, refusal] :
       {std::tuple<std::string, ModelParts::Value, std::string>{
            "altup.num_inputs", 0u, "gemma3n.altup.num_inputs is 0, expected 2 to 4"},
        {"altup.num_inputs", 1u, "gemma3n.altup.num_inputs is 1, expected 2 to 4"},
        {"altup.num_inputs", 5u, "gemma3n.altup.num_inputs is 5, expected 2 to 4"},
        {"altup.num_inputs", 4u,
         "tensor altup_proj.weight: shape [2, 32, 32], expected 3 matrices from gemma3n.altup.num_inputs"},
        {"altup.active_idx", 1u, "gemma3n.altup.active_idx is 1, expected 0 to 0"},
        {"embedding_length_per_layer_input", 0u,
         "gemma3n.embedding_length_per_layer_input is 0, expected 1 to"},
        {"embedding_length_per_layer_input", 5u,
         "tensor per_layer_token_embd.weight: shape [287, 8], expected [287, 10] from "
         "gemma3n.embedding_length_per_layer_input"},
        {"attention.shared_kv_layers", 2u, "gemma3n.attention.shared_kv_layers is 2, expected 0 to 1"},
        {"attention.shared_kv_layers", 1u, "no layer before layer 1 attends as it does"},
        {"feed_forward_length", 0u, "gemma3n.feed_forward_length is 0, expected 1 to"},
        {"attention.head_count", 5u, "gemma3n.attention.head_count"},
        {"activation_sparsity_scale", std::vector<float>{1.0f},
         "gemma3n.activation_sparsity_scale has 1 elements, expected one for each of 2 layers"},
        {"activation_sparsity_scale", std::vector<float>{1.0f, kInfinity},
         "gemma3n.activation_sparsity_scale is inf, expected -inf to"},
        {"activation_sparsity_scale", std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 1.0f},
         "gemma3n.activation_sparsity_scale is nan, expected -inf to"}}) {
    ModelParts parts = gemma3n_model();
    parts.keys["gemma3n." + key] = value;
    EXPECT_THAT(gemma3n_refusal(parts), HasSubstr(refusal)) << key;
  }
  for (const char* key : {"altup.num_inputs", "altup.active_idx", "embedding_length_per_layer_input",
                          "activation_sparsity_scale", "attention.sliding_window"}) {
    ModelParts parts = gemma3n_model();
    parts.keys.erase(fmt::format("gemma3n.{}", key));
    EXPECT_THAT(gemma3n_refusal(parts), HasSubstr(fmt::format("key gemma3n.{} is missing", key)));
  }
}

TEST(Gemma3n, TensorsAreHeldAgainstTheConfiguration) {
  EXPECT_EQ(gemma3n_refusal(gemma3n_model()), "");
  for (const auto& [tensor, dims, expected] :
       {std::tuple{"altup_unembd_proj.weight", std::vector<uint64_t>{32, 32, 3},
                   "shape [3, 32, 32], expected 2 matrices from gemma3n.altup.num_inputs"},
        {"altup_proj.weight", {31, 32, 2}, "tensor altup_proj.0.weight: shape [32, 31], expected [32, 32]"},
        {"blk.1.altup_router.weight", {32, 4}, "expected [3, 32] from gemma3n.altup.num_inputs"},
        {"blk.1.altup_predict_coef.weight", {3, 3}, "expected [9, 3] from gemma3n.altup.num_inputs"},
        {"blk.1.altup_correct_coef.weight", {3, 9}, "expected [3, 3] from gemma3n.altup.num_inputs"},
        {"blk.1.altup_correct_scale.weight", {3}, "shape [3], expected [32]"},
        {"blk.1.laurel_l.weight", {32, 6}, "shape [6, 32], expected [5, 32]"},
        {"blk.0.laurel_r.weight", {6, 32}, "shape [32, 6], expected [32, 5]"}}) {
    ModelParts parts = gemma3n_model();
    parts.tensors[tensor] = {DType::f32, dims, {}};
    EXPECT_THAT(gemma3n_refusal(parts), HasSubstr(expected)) << tensor;
    parts.tensors.erase(tensor);
    EXPECT_THAT(gemma3n_refusal(parts), HasSubstr("is missing")) << tensor;
  }
  ModelParts other = tiny_model("gemma3");
  other.tensors["altup_proj.weight"] = {DType::f32, {32, 32, 2}, {}};
  EXPECT_THAT(gemma3n_refusal(other),
              HasSubstr("tensor altup_proj.weight is not part of architecture gemma3"));
}

TEST(Gemma3n, ACutNeedsTheWholeRowOfGates) {
  ModelParts parts = gemma3n_model();
  EXPECT_THAT(test::refusal_of([&] {
                shard_config(Gemma3n(parts).config(), {0, 2});
              }),
              HasSubstr("tensor-parallel-size: 2, expected 1 for model model.gguf: layer 0 cuts its gates"));
  const float none = -std::numeric_limits<float>::infinity();
  parts.keys["gemma3n.activation_sparsity_scale"] = std::vector<float>{none, none};
  EXPECT_EQ(shard_config(Gemma3n(parts).config(), {0, 2}).ffn_size, 32);
}

TEST(Gemma3n, OpsAreCountedByTheProfile) {
  const Gemma3n model(gemma3n_model());
  const auto backend = make_cpu_backend(1);
  const KvCache kv(*backend, model.config(), {}, DType::f32, 4, 16);
  const RecurrentStatePool states(*backend, model.config(), 0);
  const Decoder decoder(model.config(), load_weights(*model.source, *backend), *backend, kv, states,
                        {.max_tokens = 16, .logit_slice = 4, .max_positions = 64});
  BatchShape shape;
  shape.add_sequence(true, 20, 1, 1);
  shape.add_sequence(false, 7, 7, 1);
  const auto work = [&](std::string_view name) {
    const auto found = std::ranges::find(decoder.ops(), name, &OpInfo::name);
    EXPECT_NE(found, decoder.ops().end()) << name;
    return op_work(*found, shape);
  };
  const int64_t x = 8 * 32, streams = 3 * x;
  EXPECT_EQ(work("altup_match").bytes_read, streams * 4);
  EXPECT_EQ(work("altup_match").bytes_written, (streams + x) * 4);
  EXPECT_EQ(work("altup_match").flops, streams * 4);
  EXPECT_EQ(work("altup_predict").bytes_read, (streams + 9 * 3) * 4) << "streams, numbers of the layer";
  EXPECT_EQ(work("altup_predict").flops, 2 * 3 * streams);
  EXPECT_EQ(work("altup_correct").bytes_read, (streams + x + 3 * 3 + 32) * 4) << "the scale too";
  EXPECT_EQ(work("altup_correct").flops, streams * 4);
  EXPECT_EQ(work("laurel_in").flops, 8 * 2 * 32 * 5);
  EXPECT_EQ(work("gate_up").flops, 8 * 2 * 32 * 128);
  EXPECT_EQ(work("gate_cut").bytes_written, 8 * 64 * 4);
  const auto of_layer = [&](std::string_view name, int32_t layer) {
    return std::ranges::count_if(decoder.ops(),
                                 [&](const OpInfo& op) { return op.name == name && op.layer == layer; });
  };
  EXPECT_EQ(of_layer("gate_cut", 0), 1);
  EXPECT_EQ(of_layer("gate_cut", 1), 0);
  EXPECT_EQ(of_layer("gate_up_swiglu", 1), 1);
  EXPECT_EQ(of_layer("altup_predict", 1), 1);
  EXPECT_EQ(of_layer("altup_merge", -1), 1);
}

}  // namespace
}  // namespace minfer
