// Gated delta nets in files: keys, the tensors of a layer, its memory, and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/work.h"
#include "models/decoder/config/config_facts.h"
#include "models/decoder/decoder.h"
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelParts hybrid_model() {
  return tiny_model("qwen3next", 4);
}

std::unique_ptr<ModelSource> hybrid_source(const ModelParts& model, std::vector<std::byte>& bytes) {
  bytes = model.build();
  return open_model_in_memory(bytes, "model.gguf");
}

ModelConfig hybrid_config(const ModelParts& model) {
  const std::vector<std::byte> bytes = model.build();
  return read_config(GgufFile::from_memory(bytes, "model.gguf"));
}

std::string hybrid_refusal(const ModelParts& model) {
  return test::refusal_of<FileError>([&] {
    std::vector<std::byte> bytes;
    load_weights(*hybrid_source(model, bytes), *make_cpu_backend(1));
  });
}

std::vector<bool> delta_layers(const ModelConfig& config) {
  std::vector<bool> layers;
  for (const LayerConfig& layer : config.layers)
    layers.push_back(layer.is_delta_net);
  return layers;
}

TEST(DeltaNetModel, SizesAndLayersAreReadFromKeys) {
  const ModelConfig config = hybrid_config(hybrid_model());
  EXPECT_EQ(
      config.delta_net,
      (DeltaNetShape{.key_heads = 2, .value_heads = 4, .key_size = 6, .value_size = 6, .conv_size = 3}));
  EXPECT_THAT(delta_layers(config), ElementsAre(true, false));
  EXPECT_EQ(config.qkv_size(0), 48 + 24 + 8) << "channels, z, beta and alpha";
  EXPECT_EQ(config.kv_size(0), 0);
  EXPECT_EQ(config.output_size(0), 24);
  EXPECT_EQ(config.qkv_size(1), 64 + 2 * 16) << "queries with gates";
  EXPECT_EQ(config.output_size(1), 32);
  EXPECT_EQ(config.layer(0).rope, LayerConfig::kNoRope);
  std::vector<std::string> facts;
  for (const ConfigFact& fact : config_facts(config))
    facts.push_back(fmt::format("{}: {}", fact.name, fact.value));
  EXPECT_THAT(
      facts,
      Contains("gated delta nets, 2 key heads of 6, 4 value heads of 6, convolution over 3 tokens: 0"));
  EXPECT_THAT(facts, Contains("attention, full, RoPE 0: 1"));
  EXPECT_THAT(facts, Contains("gates of attention: each head, by sigmoid"));
}

TEST(DeltaNetModel, AnArrayOfLayersComesBeforeThePeriod) {
  ModelParts model = hybrid_model();
  model.keys["qwen3next.attention.recurrent_layers"] = std::vector<int32_t>{0, 1};
  EXPECT_THAT(delta_layers(hybrid_config(model)), ElementsAre(false, true));
  // The count includes layers that only predict further tokens.
  model.keys["qwen3next.block_count"] = 3u;
  model.keys["qwen3next.nextn_predict_layers"] = 1u;
  EXPECT_THAT(hybrid_refusal(model),
              HasSubstr("recurrent_layers has 2 elements, expected one for each of 3 layers"));
  model.keys["qwen3next.attention.recurrent_layers"] = std::vector<int32_t>{0, 1, 0};
  EXPECT_THAT(delta_layers(hybrid_config(model)), ElementsAre(false, true));
  model.keys["qwen3next.attention.recurrent_layers"] = std::vector<int32_t>{1, 1, 0};
  EXPECT_THAT(hybrid_refusal(model), HasSubstr("none of 2 layers attends"));
}

TEST(DeltaNetModel, KeysOutOfRangeAreRefusedByName) {
  struct Wrong {
    const char* key;
    uint32_t value;
    const char* message;
  };
  for (const Wrong& wrong :
       {Wrong{"ssm.conv_kernel", 1, "expected 2 to 16"}, Wrong{"ssm.conv_kernel", 17, "expected 2 to 16"},
        Wrong{"ssm.state_size", 0, "expected 1 to 1024"}, Wrong{"ssm.state_size", 1025, "expected 1 to 1024"},
        Wrong{"ssm.group_count", 0, "expected 1 to 4096"},
        Wrong{"ssm.time_step_rank", 0, "expected 1 to 4096"},
        Wrong{"ssm.time_step_rank", 3, "expected a multiple of qwen3next.ssm.group_count = 2"},
        Wrong{"ssm.inner_size", 26, "expected qwen3next.ssm.time_step_rank = 4 heads"},
        Wrong{"ssm.inner_size", 4 * 1025, "heads of at most 1024 elements"},
        Wrong{"ssm.inner_size", 0xffffffffu, "expected 1 to 4194304"},
        Wrong{"full_attention_interval", 1, "expected 2 to 1000"},
        Wrong{"full_attention_interval", 4, "none of 2 layers attends"}}) {
    ModelParts model = hybrid_model();
    model.keys[fmt::format("qwen3next.{}", wrong.key)] = wrong.value;
    EXPECT_THAT(hybrid_refusal(model), AllOf(HasSubstr(wrong.key), HasSubstr(wrong.message))) << wrong.value;
    model.keys.erase(fmt::format("qwen3next.{}", wrong.key));
    if (std::string_view(wrong.key).starts_with("ssm.")) {
      EXPECT_THAT(hybrid_refusal(model), HasSubstr(fmt::format("qwen3next.{} is missing", wrong.key)));
    }
  }
}

TEST(DeltaNetModel, TensorsAreHeldAgainstTheConfiguration) {
  EXPECT_EQ(hybrid_refusal(hybrid_model()), "");
  ModelParts model = hybrid_model();
  model.tensors["blk.0.ssm_conv1d.weight"].dims = {4, 48};
  EXPECT_THAT(hybrid_refusal(model),
              HasSubstr("ssm_conv1d.weight: shape [48, 4], expected [48, 3] from qwen3next.ssm.conv_kernel"));
  model = hybrid_model();
  model.tensors["blk.0.ssm_a"] = {DType::f32, {3}, {}};
  EXPECT_THAT(hybrid_refusal(model),
              HasSubstr("tensor blk.0.ssm_a: shape [3], expected [4] from qwen3next.ssm.time_step_rank"));
  model = hybrid_model();
  model.tensors["blk.0.attn_q.weight"] = {DType::f32, {32, 64}, {}};
  EXPECT_THAT(hybrid_refusal(model),
              HasSubstr("tensor blk.0.attn_q.weight is not part of architecture qwen3next"));
  model = hybrid_model();
  model.tensors["blk.1.attn_q.weight"].dims = {32, 32};
  EXPECT_THAT(hybrid_refusal(model), HasSubstr("attn_q.weight: shape [32, 32], expected [64, 32]"));
  model = hybrid_model();
  model.tensors["blk.0.ssm_in.weight"] = {DType::f32, {32, 72}, {}};
  model.tensors.erase("blk.0.attn_qkv.weight");
  EXPECT_THAT(hybrid_refusal(model),
              AllOf(HasSubstr("blk.0.ssm_in.weight"), HasSubstr("convert the model again")));
}

TEST(DeltaNetModel, NarrowTypesOfItsTensorsAreWidened) {
  const ModelParts wide = hybrid_model();
  ModelParts model = hybrid_model();
  for (const char* name : {"blk.0.ssm_conv1d.weight", "blk.0.ssm_dt.bias", "blk.0.ssm_norm.weight"})
    model.tensors[name].dtype = DType::f16;
  std::vector<std::byte> bytes, wide_bytes;
  const auto source = hybrid_source(model, bytes), wide_source = hybrid_source(wide, wide_bytes);
  const auto backend = make_cpu_backend(1);
  const ModelWeights weights = load_weights(*source, *backend),
                     expected = load_weights(*wide_source, *backend);
  const Weight& conv = weights.layers[0].delta.conv;
  EXPECT_EQ(conv.rows, 3);
  EXPECT_EQ(conv.cols, 48);
  for (int64_t i = 0; i < conv.rows * conv.cols; ++i)
    EXPECT_NEAR(static_cast<const float*>(conv.data)[i],
                static_cast<const float*>(expected.layers[0].delta.conv.data)[i], 2e-3f);
  // Transposed: input j of channel c.
  const auto* in_file =
      reinterpret_cast<const float*>(wide_source->find_tensor("blk.0.ssm_conv1d.weight")->data);
  EXPECT_EQ(static_cast<const float*>(expected.layers[0].delta.conv.data)[48 + 7], in_file[7 * 3 + 1]);
}

TEST(DeltaNetModel, StatesHaveMemoryOfTheirOwn) {
  const ModelConfig config = hybrid_config(hybrid_model());
  // A matrix [6, 6] for each of four heads, and two inputs of 48 channels.
  EXPECT_EQ(RecurrentStatePool::slot_bytes(config), (4 * 36 + 2 * 48) * sizeof(float));
  const auto backend = make_cpu_backend(1);
  const RecurrentStatePool pool(*backend, config, 3);
  EXPECT_EQ(pool.bytes(), 3 * RecurrentStatePool::slot_bytes(config));
  EXPECT_EQ(pool.layer(0).num_slots, 3);
  EXPECT_EQ(pool.layer(0).conv - pool.layer(0).delta, 3 * 4 * 36);
  EXPECT_EQ(pool.layer(1).delta, nullptr);
  const KvCache kv(*backend, config, {}, DType::f32, 4, 16);
  EXPECT_EQ(kv.layer(0).k, nullptr);
  EXPECT_EQ(kv.bytes(), 4 * 16 * 2 * 16 * sizeof(float)) << "keys and values of one layer";
  const ModelConfig other = hybrid_config(tiny_model("qwen3"));
  EXPECT_EQ(RecurrentStatePool::slot_bytes(other), 0u);
  EXPECT_EQ(RecurrentStatePool(*backend, other, 3).bytes(), 0u);
}

TEST(DeltaNetModel, ACopyOfASlotIsOfAllLayersAndTouchesNoOther) {
  const ModelConfig config = hybrid_config(hybrid_model());
  const auto backend = make_cpu_backend(1);
  const RecurrentStatePool pool(*backend, config, 4);
  const RecurrentLayer& states = pool.layer(0);
  const auto fill = [](float* values, int64_t slot_size) {
    for (int64_t i = 0; i < 4 * slot_size; ++i)
      values[i] = static_cast<float>(i / slot_size * 1000 + i % slot_size);
  };
  const auto slot_of = [](const float* values, int64_t slot_size, int64_t i) {
    return static_cast<int32_t>(values[i] - static_cast<float>(i % slot_size)) / 1000;
  };
  const int64_t delta = config.delta_net.delta_state(), conv = config.delta_net.conv_state();
  fill(states.delta, delta);
  fill(states.conv, conv);
  pool.copy(*backend, {.from = 3, .to = 1});
  constexpr int32_t kExpected[] = {0, 3, 2, 3};
  for (int64_t i = 0; i < 4 * delta; ++i)
    ASSERT_EQ(slot_of(states.delta, delta, i), kExpected[i / delta]) << i;
  for (int64_t i = 0; i < 4 * conv; ++i)
    ASSERT_EQ(slot_of(states.conv, conv, i), kExpected[i / conv]) << i;
  EXPECT_THROW(pool.copy(*backend, {.from = 0, .to = 4}), Error);
  EXPECT_THROW(pool.copy(*backend, {.from = -1, .to = 0}), Error);
}

TEST(DeltaNetModel, OpsAreCountedByTheProfile) {
  std::vector<std::byte> bytes;
  const auto source = hybrid_source(hybrid_model(), bytes);
  const ModelConfig& config = source->config();
  const auto backend = make_cpu_backend(1);
  const KvCache kv(*backend, config, {}, DType::f32, 4, 16);
  const RecurrentStatePool states(*backend, config, 2);
  const Decoder decoder(config, load_weights(*source, *backend), *backend, kv, states,
                        {.max_tokens = 16, .logit_slice = 4, .max_positions = 64});
  BatchShape shape;
  shape.add_sequence(true, 20, 1, 1);
  shape.add_sequence(false, 7, 7, 1);
  const auto work = [&](std::string_view name, int32_t layer) {
    const auto found = std::ranges::find_if(
        decoder.ops(), [&](const OpInfo& info) { return info.name == name && info.layer == layer; });
    EXPECT_NE(found, decoder.ops().end()) << name;
    return op_work(*found, shape);
  };
  EXPECT_EQ(work("delta_in", 0).flops, 8 * 2 * 32 * 80);
  const KernelWork conv = work("delta_conv", 0);
  EXPECT_EQ(conv.bytes_read, (8 * 48 + 2 * 2 * 48 + 3 * 48) * 4) << "inputs, states, weights";
  EXPECT_EQ(conv.bytes_written, (8 * 48 + 2 * 2 * 48) * 4);
  EXPECT_EQ(conv.flops, 8 * (48 * (2 * 3 + 3) + 6 * 12));
  const KernelWork rule = work("delta_rule", 0);
  EXPECT_EQ(rule.bytes_read, (8 * (48 + 8) + 2 * 4 * 36 + 2 * 4) * 4);
  EXPECT_EQ(rule.bytes_written, (8 * 24 + 2 * 4 * 36) * 4);
  EXPECT_EQ(rule.flops, 8 * 7 * 4 * 36);
  const KernelWork gate = work("delta_gate", 0);
  EXPECT_EQ(gate.bytes_read, (8 * 2 * 24 + 6) * 4);
  EXPECT_EQ(gate.bytes_written, 8 * 24 * 4);
  EXPECT_EQ(gate.flops, 8 * 24 * 8);
  EXPECT_EQ(work("attention_gate", 1).flops, 8 * 32 * 4);
  EXPECT_EQ(work("delta_out", 0).flops, 8 * 2 * 24 * 32);
}

TEST(DeltaNetModel, RunsOnCuda) {
  std::vector<std::byte> bytes;
  const auto source = hybrid_source(hybrid_model(), bytes);
  EXPECT_NO_THROW(check_shapes(*source, cuda::shape_limits(DType::bf16), "cuda"));
}

}  // namespace
}  // namespace minfer
