// Tensors that converters fuse into one are split into views of their parts.
#include "models/decoder/weights/fused_tensors.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/decoder/weights/weights.h"
#include "tests/support/models/tiny_model.h"

namespace minfer {
namespace {

using test::ModelParts;
using test::tiny_model;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A Phi-3 with the tensors of every layer fused, as its converter writes them.
ModelParts fused_model() {
  ModelParts model = tiny_model("phi3");
  for (const char* blk : {"blk.0.", "blk.1."}) {
    for (const char* part : {"attn_q.weight", "attn_k.weight", "attn_v.weight", "ffn_gate.weight"})
      model.tensors.erase(std::string(blk) + part);
    model.tensors[std::string(blk) + "attn_qkv.weight"] = {DType::f32, {32, 64}, {}};
    model.tensors[std::string(blk) + "attn_qkv.bias"] = {DType::f32, {64}, {}};
    model.tensors[std::string(blk) + "ffn_up.weight"] = {DType::f32, {32, 128}, {}};
  }
  return model;
}

TEST(FusedTensors, PartsLieWhereTheWholeIs) {
  const std::vector<std::byte> bytes = fused_model().build();
  const GgufFile file = GgufFile::from_memory(bytes, "model.gguf");
  const auto source = open_model_in_memory(bytes, "model.gguf");
  const auto expect_part = [&](const char* whole_name, const char* part_name, int64_t first, int64_t size) {
    const HostTensor* whole = file.find_tensor(whole_name);
    const HostTensor* part = source->find_tensor(part_name);
    ASSERT_NE(part, nullptr) << part_name;
    const bool is_vector = whole->rows == 1;
    EXPECT_EQ(is_vector ? part->cols : part->rows, size) << part_name;
    const auto skipped = static_cast<size_t>(first * (is_vector ? 4 : whole->cols * 4));
    EXPECT_EQ(std::memcmp(part->data, static_cast<const std::byte*>(whole->data) + skipped, part->bytes()), 0)
        << part_name;
  };
  expect_part("blk.1.attn_qkv.weight", "blk.1.attn_q.weight", 0, 32);
  expect_part("blk.1.attn_qkv.weight", "blk.1.attn_k.weight", 32, 16);
  expect_part("blk.1.attn_qkv.weight", "blk.1.attn_v.weight", 48, 16);
  expect_part("blk.0.attn_qkv.bias", "blk.0.attn_k.bias", 32, 16);
  expect_part("blk.0.ffn_up.weight", "blk.0.ffn_gate.weight", 0, 64);
  expect_part("blk.0.ffn_up.weight", "blk.0.ffn_up.weight", 64, 64);
  EXPECT_EQ(source->find_tensor("blk.0.attn_qkv.weight"), nullptr);
  const auto backend = make_cpu_backend(1);
  EXPECT_EQ(load_weights(*source, *backend).layers.size(), 2u);
}

TEST(FusedTensors, PartsOfExpertsLieInEachOfThem) {
  ModelParts model = tiny_model("qwen3moe", 4);
  for (const char* blk : {"blk.0.", "blk.1."}) {
    model.tensors.erase(std::string(blk) + "ffn_gate_exps.weight");
    model.tensors.erase(std::string(blk) + "ffn_up_exps.weight");
    model.tensors[std::string(blk) + "ffn_gate_up_exps.weight"] = {DType::f32, {32, 128, 4}, {}};
  }
  const std::vector<std::byte> bytes = model.build();
  const GgufFile file = GgufFile::from_memory(bytes, "model.gguf");
  const auto source = open_model_in_memory(bytes, "model.gguf");
  const HostTensor* whole = file.find_tensor("blk.1.ffn_gate_up_exps.weight");
  const auto backend = make_cpu_backend(1);
  const LayerWeights layer = load_weights(*source, *backend).layers[1];
  for (const auto& [part, first] : {std::pair(&layer.gate, 0), {&layer.up, 64}}) {
    ASSERT_EQ(part->count, 4);
    ASSERT_EQ(part->rows, 64);
    for (int64_t expert = 0; expert < 4; ++expert) {
      const size_t size = part->matrix_bytes();
      EXPECT_EQ(std::memcmp(static_cast<const std::byte*>(part->data) + static_cast<size_t>(expert) * size,
                            whole->row(expert, first), size),
                0)
          << first << ", expert " << expert;
    }
  }
  model.tensors["blk.0.ffn_gate_up_exps.weight"].dims = {32, 96, 4};
  const std::vector<std::byte> wrong = model.build();
  EXPECT_THAT([&] { open_model_in_memory(wrong, "model.gguf"); },
              ThrowsMessage<FileError>(HasSubstr("tensor blk.0.ffn_gate_up_exps.weight: shape [4, 96, 32], "
                                                 "expected 128 rows of its parts together")));
}

TEST(FusedTensors, OthersStayAsTheyAre) {
  const std::vector<std::byte> bytes = tiny_model().build();
  const GgufFile file = GgufFile::from_memory(bytes, "model.gguf");
  const std::vector<HostTensor> split = split_fused_tensors(file.tensors(), read_config(file), "model.gguf");
  ASSERT_EQ(split.size(), file.tensors().size());
  for (size_t i = 0; i < split.size(); ++i) {
    EXPECT_EQ(split[i].name, file.tensors()[i].name);
    EXPECT_EQ(split[i].data, file.tensors()[i].data);
  }
}

TEST(FusedTensors, NamesOneThatIsNotTheSumOfItsParts) {
  ModelParts model = fused_model();
  model.tensors["blk.1.attn_qkv.weight"].dims = {32, 63};
  const std::vector<std::byte> bytes = model.build();
  EXPECT_THAT([&] { open_model_in_memory(bytes, "model.gguf"); },
              ThrowsMessage<FileError>(HasSubstr("model.gguf: tensor blk.1.attn_qkv.weight: shape [63, 32], "
                                                 "expected 64 rows of its parts together")));
}

}  // namespace
}  // namespace minfer
