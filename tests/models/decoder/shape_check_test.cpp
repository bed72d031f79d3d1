// Shapes that a backend cannot run are refused when the model is loaded.

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/device/shape_limits.h"
#include "models/decoder/weights/weights.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::ModelParts;
using test::tiny_model;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A model with a shape and nothing else.
class Shape final : public ModelSource {
 public:
  Shape() : Shape("synthetic:llama-3.1-8b") {}
  explicit Shape(const std::string& name) : ModelSource("model.gguf", synthetic_config(name)) {}

  std::unique_ptr<Tokenizer> make_tokenizer() const override { return nullptr; }
  using ModelSource::config_;
  using ModelSource::tensors_;
};

std::string refusal(const ModelSource& shape, const ShapeLimits& limits) {
  return test::refusal_of<FileError>([&] { check_shapes(shape, limits, "cuda"); });
}

TEST(ShapeCheck, BackendsRunTheModelsPeopleHave) {
  for (const std::string& name : synthetic_model_names()) {
    const Shape shape(std::string(kSyntheticPrefix) + name);
    for (const DType activation : {DType::f32, DType::bf16})
      EXPECT_EQ(refusal(shape, cuda::shape_limits(activation)), "") << name;
    EXPECT_EQ(refusal(shape, make_cpu_backend(1)->shape_limits()), "") << name;
  }
}

TEST(ShapeCheck, IndexersOfOtherSizesThanCudaKernelsTakeAreNamed) {
  const ShapeLimits limits = cuda::shape_limits(DType::bf16);
  const auto refusal_of = [&](Indexer indexer) {
    Shape shape("synthetic:tiny-sparse");
    shape.config_.indexer = indexer;
    return refusal(shape, limits);
  };
  EXPECT_EQ(refusal_of({.heads = 64, .key_size = 128, .most_chosen = 2048}), "");
  EXPECT_THAT(refusal_of({.heads = 65, .key_size = 128, .most_chosen = 2048}),
              HasSubstr("deepseek32.attention.indexer.head_count x key_length: 8320, expected at most 8192"));
  EXPECT_THAT(refusal_of({.heads = 4, .key_size = 126, .most_chosen = 2048}),
              HasSubstr("deepseek32.attention.indexer.key_length: 126, expected a multiple of 4"));
  EXPECT_THAT(refusal_of({.heads = 4, .key_size = 516, .most_chosen = 2048}),
              HasSubstr("deepseek32.attention.indexer.key_length: 516, expected at most 512"));
}

TEST(ShapeCheck, WhatCudaKernelsRefuseIsRefusedBeforeTheyRun) {
  const ShapeLimits limits = cuda::shape_limits(DType::bf16);
  const auto refusal_of = [&](const std::function<void(Shape&)>& change) {
    Shape shape;
    change(shape);
    return refusal(shape, limits);
  };
  EXPECT_EQ(
      refusal_of([](Shape& shape) { shape.config_.head_size = 640; }),
      "model.gguf: llama.attention.key_length (or embedding_length / attention.head_count): head size: 640, "
      "expected at most 512 on the cuda backend");
  EXPECT_THAT(refusal_of([](Shape& shape) { shape.config_.head_size = 98; }),
              AllOf(HasSubstr("llama.attention.key_length"), HasSubstr("98, expected a multiple of 4")));
  EXPECT_THAT(refusal_of([](Shape& shape) { shape.config_.rotary_size = 18; }),
              AllOf(HasSubstr("llama.rope.dimension_count"), HasSubstr("18, expected a multiple of 4")));
  EXPECT_THAT(refusal_of([](Shape& shape) { shape.config_.num_experts = 513; }),
              AllOf(HasSubstr("llama.expert_count"), HasSubstr("513, expected at most 512")));
  EXPECT_THAT(refusal_of([](Shape& shape) { shape.config_.vocab_size = cuda::kMaxVocabulary + 1; }),
              HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(refusal_of([](Shape& shape) { shape.config_.hidden_size = 1 << 18; }),
              HasSubstr("llama.embedding_length"));
  EXPECT_THAT(refusal_of([](Shape& shape) { shape.config_.ffn_size = 1 << 18; }),
              HasSubstr("llama.feed_forward_length"));
  EXPECT_THAT(refusal_of([](Shape& shape) { shape.config_.num_heads = 4096; }),
              HasSubstr("llama.attention.head_count"));
  EXPECT_THAT(refusal_of([](Shape& shape) { shape.config_.delta_net.key_size = 257; }),
              AllOf(HasSubstr("llama.ssm.state_size"), HasSubstr("257, expected at most 256")));
}

TEST(ShapeCheck, LayersOfManyKindsAreRefused) {
  Shape shape;
  shape.config_.layers[3].heads = LayerHeads{.kv_heads = 2, .size = 512, .scale = 1.0f};
  EXPECT_EQ(refusal(shape, cuda::shape_limits(DType::bf16)), "");
  EXPECT_THAT(refusal(shape, {.max_head_size = 100}), HasSubstr("head size: 128, expected at most 100"));
  for (int32_t kind = 1; kind < cuda::kMaxAttentionKinds; ++kind)
    shape.config_.layers[static_cast<size_t>(kind)].window = 100 * kind;
  EXPECT_EQ(refusal(shape, cuda::shape_limits(DType::bf16)), "");
  shape.config_.layers[20].heads = LayerHeads{.kv_heads = 4, .size = 128, .scale = 1.0f};
  EXPECT_EQ(refusal(shape, cuda::shape_limits(DType::bf16)),
            "model.gguf: llama.attention.head_count_kv, sizes of heads and windows: kinds of layers: 9, "
            "expected at "
            "most 8 on the cuda backend");
  EXPECT_EQ(refusal(shape, make_cpu_backend(1)->shape_limits()), "");
}

TEST(ShapeCheck, ATensorIsNamed) {
  Shape shape;
  shape.tensors_ = {{.name = "blk.0.ffn_down.weight", .dtype = DType::bf16, .rows = 8, .cols = 30}};
  EXPECT_EQ(refusal(shape, cuda::shape_limits(DType::bf16)), "");
  EXPECT_EQ(
      refusal(shape, cuda::shape_limits(DType::f32)),
      "model.gguf: tensor blk.0.ffn_down.weight: columns: 30, expected a multiple of 4 on the cuda backend");
  shape.tensors_[0].dtype = DType::f32;
  EXPECT_EQ(refusal(shape, cuda::shape_limits(DType::f32)), "");
}

/// The CPU backend, which takes any shape, with a limit added.
class NarrowBackend : public cpu::CpuBackend {
 public:
  using CpuBackend::CpuBackend;
  ShapeLimits shape_limits() const override { return {.max_columns = 128}; }
};

/// The refusal of a file.
std::string load_refusal(uint32_t query_heads) {
  ModelParts model = tiny_model();
  model.keys["llama.attention.head_count"] = query_heads;
  model.keys["llama.attention.head_count_kv"] = 1u;
  model.keys["llama.attention.key_length"] = 8u;
  model.keys["llama.attention.value_length"] = 8u;
  for (const char* layer : {"blk.0.", "blk.1."}) {
    model.tensors[std::string(layer) + "attn_q.weight"] = {DType::f32, {32, 8 * query_heads}, {}};
    model.tensors[std::string(layer) + "attn_k.weight"] = {DType::f32, {32, 8}, {}};
    model.tensors[std::string(layer) + "attn_v.weight"] = {DType::f32, {32, 8}, {}};
    model.tensors[std::string(layer) + "attn_output.weight"] = {DType::f32, {8 * query_heads, 32}, {}};
  }
  const std::vector<std::byte> bytes = model.build();
  const auto source = open_model_in_memory(bytes, "model.gguf");
  NarrowBackend backend(1);
  try {
    load_weights(*source, backend);
    return "";
  } catch (const FileError& error) {
    return error.what();
  }
}

TEST(ShapeCheck, LoadingRefusesWhatTheBackendCannotRun) {
  EXPECT_EQ(load_refusal(16), "");
  EXPECT_THAT(load_refusal(17), AllOf(StartsWith("model.gguf: llama.attention.head_count"),
                                      HasSubstr("136, expected at most 128 on the cpu backend")));
}

}  // namespace
}  // namespace minfer
