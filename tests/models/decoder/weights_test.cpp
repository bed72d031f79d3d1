// The tensors of a file that load_weights uses, and its refusals.
#include "models/decoder/weights/weights.h"

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/half.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using test::ModelParts;
using test::tiny_model;
using ::testing::HasSubstr;

class LoadWeights : public ::testing::Test {
 protected:
  ModelWeights load(const ModelParts& model) {
    model.builder().write(path_);
    source_ = open_model(path_.string());
    return load_weights(*source_, *backend_);
  }

  /// The message with which a model is refused; empty: it is accepted.
  std::string refusal(const ModelParts& model) {
    try {
      load(model);
      return "";
    } catch (const FileError& error) {
      return error.what();
    }
  }

  test::TemporaryDirectory dir_;
  std::filesystem::path path_ = dir_.path() / "model.gguf";
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  std::unique_ptr<ModelSource> source_;
};

TEST_F(LoadWeights, TakesEveryArchitecture) {
  for (const Architecture& architecture : known_architectures()) {
    const int32_t experts = architecture.expert_layers == ExpertLayers::always ? 4 : 0;
    const ModelWeights weights = load(tiny_model(architecture.name, experts));
    ASSERT_EQ(weights.layers.size(), architecture.has_single_blocks ? 3u : 2u) << architecture.name;
    EXPECT_EQ(static_cast<bool>(weights.layers[1].q_bias), architecture.qkv_bias) << architecture.name;
    const bool norms = architecture.qk_norm != QkNorm::none && architecture.qk_norm != QkNorm::rotated_head;
    EXPECT_EQ(static_cast<bool>(weights.layers[1].k_norm), norms) << architecture.name;
    EXPECT_EQ(static_cast<bool>(weights.layers.back().router), experts > 0) << architecture.name;
  }
  EXPECT_EQ(load(tiny_model("llama", 4)).layers[0].gate.count, 4) << "Mixtral";
}

/// Keeps the order in which matrices are loaded. On a GPU they lie in that order.
class OrderOfLoading final : public cpu::CpuBackend {
 public:
  OrderOfLoading() : CpuBackend(1) {}
  Weight load(const HostTensor& tensor) override {
    Weight weight = CpuBackend::load(tensor);
    loaded_.push_back(weight.data);
    return weight;
  }
  ptrdiff_t place(const Weight& weight) const {
    return std::ranges::find(loaded_, weight.data) - loaded_.begin();
  }

 private:
  std::vector<const void*> loaded_;
};

TEST_F(LoadWeights, LoadsUpBehindGate) {
  const auto check = [&](const std::string& name, int32_t experts) {
    auto backend = std::make_unique<OrderOfLoading>();
    const OrderOfLoading& order = *backend;
    backend_ = std::move(backend);
    for (const LayerWeights& layer : load(tiny_model(name, experts)).layers) {
      if (layer.gate) {
        EXPECT_LT(order.place(layer.gate), order.place(layer.up)) << name;
      }
      if (layer.shared_gate) {
        EXPECT_LT(order.place(layer.shared_gate), order.place(layer.shared_up)) << name;
      }
    }
  };
  check("llama", 4);  // Mixtral
  for (const Architecture& architecture : known_architectures())
    if (architecture.has_gate)
      check(std::string(architecture.name), architecture.expert_layers == ExpertLayers::always ? 4 : 0);
}

TEST_F(LoadWeights, TiesTheOutputToTheEmbeddingWhereThereIsNone) {
  ModelParts model = tiny_model();
  EXPECT_NE(load(model).output.data, load(model).embedding.data);
  model.tensors.erase("output.weight");
  const ModelWeights weights = load(model);
  EXPECT_EQ(weights.output.data, weights.embedding.data);
}

TEST_F(LoadWeights, NamesEachMissingTensor) {
  const ModelParts complete = tiny_model("qwen3");
  for (const auto& [name, tensor] : complete.tensors) {
    if (name == "output.weight") continue;
    ModelParts model = complete;
    model.tensors.erase(name);
    EXPECT_THAT(refusal(model), HasSubstr(fmt::format("tensor {} is missing", name)));
  }
}

TEST_F(LoadWeights, NamesShapeFoundExpectedAndTheKey) {
  const auto refused = [this](const char* name, std::vector<uint64_t> dims, int32_t experts = 0) {
    ModelParts model = tiny_model("llama", experts);
    model.tensors[name].dims = std::move(dims);
    return refusal(model);
  };
  EXPECT_THAT(refused("blk.1.ffn_up.weight", {32, 48}),
              HasSubstr("model.gguf: tensor blk.1.ffn_up.weight: shape [48, 32], expected [64, 32] from "
                        "llama.feed_forward_length"));
  EXPECT_THAT(refused("blk.0.attn_q.weight", {16, 32}),
              HasSubstr("shape [32, 16], expected [32, 32] from llama.embedding_length"));
  EXPECT_THAT(refused("blk.0.attn_k.weight", {32, 32}),
              HasSubstr("shape [32, 32], expected [16, 32] from llama.attention.head_count_kv"));
  EXPECT_THAT(refused("output_norm.weight", {31}),
              HasSubstr("shape [31], expected [32] from llama.embedding_length"));
  EXPECT_THAT(refused("blk.0.attn_norm.weight", {32, 2}), HasSubstr("shape [2, 32], expected [32]"));
  EXPECT_THAT(refused("blk.0.ffn_down.weight", {64, 32, 2}),
              HasSubstr("shape [2, 32, 64], expected [32, 64]"));
  EXPECT_THAT(refused("blk.0.ffn_down_exps.weight", {64, 32, 3}, 4),
              HasSubstr("shape [3, 32, 64], expected [4, 32, 64] from llama.expert_count"));
}

TEST_F(LoadWeights, RefusesATensorThatTheFamilyDoesNotUse) {
  for (const char* name : {"blk.0.attn_norm.bias", "blk.0.post_ffw_norm.weight", "blk.2.attn_q.weight",
                           "blk.0.attn_q_norm.weight", "x"}) {
    ModelParts model = tiny_model();
    model.tensors[name] = {DType::f32, {32}, {}};
    EXPECT_THAT(refusal(model),
                HasSubstr(fmt::format("tensor {} is not part of architecture llama as known here", name)));
  }
}

TEST_F(LoadWeights, BiasesComeTogether) {
  for (const char* part : {"q", "k", "v"}) {
    ModelParts model = tiny_model("qwen2");
    const std::string name = fmt::format("blk.1.attn_{}.bias", part);
    model.tensors.erase(name);
    EXPECT_THAT(refusal(model), HasSubstr(fmt::format("tensor {} is missing", name)));
    ModelParts alone = tiny_model();
    alone.tensors[name] = {DType::f32, {std::string_view(part) == "q" ? 32u : 16u}, {}};
    EXPECT_THAT(refusal(alone), HasSubstr(".bias is missing")) << "of the other two";
  }
}

TEST_F(LoadWeights, RefusesALayerCountBeyondTheTensorsAtOnce) {
  ModelParts model = tiny_model();
  model.keys["llama.block_count"] = 1000u;
  EXPECT_THAT(refusal(model), HasSubstr("tensor blk.2.attn_norm.weight is missing"));
  model.keys["llama.block_count"] = 1u;
  EXPECT_THAT(refusal(model), HasSubstr("tensor blk.1."));
}

TEST_F(LoadWeights, NamesTheLayoutOfOldMixtralFiles) {
  ModelParts model = tiny_model("llama", 2);
  model.tensors.erase("blk.0.ffn_gate_exps.weight");
  model.tensors["blk.0.ffn_gate.0.weight"] = {DType::f32, {32, 64}, {}};
  EXPECT_THAT(refusal(model), HasSubstr("tensor blk.0.ffn_gate.0.weight: one tensor for each expert"));
}

TEST_F(LoadWeights, GateAndUpOfExpertsHaveOneType) {
  ModelParts model = tiny_model("llama", 4);
  model.tensors["blk.0.ffn_gate_exps.weight"].dtype = DType::q8_0;
  EXPECT_THAT(refusal(model),
              HasSubstr("layer 0: the gate weight of experts is q8_0, expected f32 as the up weight"));
  ModelParts dense = tiny_model();
  dense.tensors["blk.0.ffn_gate.weight"].dtype = DType::q8_0;
  EXPECT_EQ(refusal(dense), "");
}

TEST_F(LoadWeights, WidensVectorsOfAnyType) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    test::ByteWriter values;
    for (int i = 0; i < 32; ++i) {
      const float value = 0.5f + static_cast<float>(i);
      values.put(dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value));
    }
    ModelParts model = tiny_model();
    model.tensors["output_norm.weight"] = {dtype, {32}, values.bytes()};
    const ModelWeights weights = load(model);
    ASSERT_EQ(weights.output_norm.dtype, DType::f32);
    const auto* widened = static_cast<const float*>(weights.output_norm.data);
    for (int i = 0; i < 32; ++i)
      ASSERT_EQ(widened[i], 0.5f + static_cast<float>(i)) << name(dtype);
  }
}

TEST_F(LoadWeights, ChecksRopeFrequencies) {
  ModelParts model = tiny_model();
  const auto set = [&model](std::vector<float> factors) {
    test::ByteWriter values;
    for (const float factor : factors)
      values.put(factor);
    model.tensors["rope_freqs.weight"] = {DType::f32, {factors.size()}, values.bytes()};
  };
  set({1.0f, 2.0f, 4.0f, 8.0f});
  EXPECT_EQ(load(model).rope_frequency_factors, (std::vector<float>{1.0f, 2.0f, 4.0f, 8.0f}));
  for (const float bad :
       {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    set({1.0f, bad, 4.0f, 8.0f});
    EXPECT_THAT(refusal(model), HasSubstr("tensor rope_freqs.weight holds"));
  }
  set({1.0f, 2.0f});
  EXPECT_THAT(refusal(model), HasSubstr("shape [2], expected [4] from llama.rope.dimension_count / 2"));
}

}  // namespace
}  // namespace minfer
