#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/evaluator.h"
#include "kernels/cpu/lanes/isa.h"
#include "kernels/cpu/product/linear.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {
namespace {

using testing::HasSubstr;

std::vector<std::string> types() {
  std::vector<std::string> all{"q3_k_m", "q4_k_m", "q5_k_m"};
  for (const DTypeTraits& type : all_dtypes())
    all.emplace_back(type.name);
  return all;
}

class SyntheticTypes : public testing::TestWithParam<std::string> {};

TEST_P(SyntheticTypes, WeightsAreSpreadAsInATrainedModel) {
  const auto model = make_synthetic_model("synthetic:tiny:" + GetParam());
  for (const char* tensor_name : {"blk.0.ffn_up.weight", "blk.1.attn_v.weight", "output.weight"}) {
    const HostTensor* tensor = model->find_tensor(tensor_name);
    ASSERT_NE(tensor, nullptr);
    std::vector<float> row(static_cast<size_t>(tensor->cols));
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < tensor->rows; ++i) {
      cpu::dequantise_row(static_cast<const std::byte*>(tensor->data) +
                              i * static_cast<int64_t>(row_bytes(tensor->dtype, tensor->cols)),
                          tensor->dtype, tensor->cols, cpu::selected_isa(), row.data());
      for (float value : row) {
        ASSERT_TRUE(std::isfinite(value));
        sum += value;
        squares += static_cast<double>(value) * value;
      }
    }
    const auto count = static_cast<double>(tensor->rows * tensor->cols);
    const double expected = 1.0 / std::sqrt(static_cast<double>(tensor->cols));
    const double deviation = std::sqrt(squares / count - sum / count * (sum / count));
    EXPECT_NEAR(deviation / expected, 1.0, 0.35) << tensor_name;
    EXPECT_LT(std::abs(sum / count), 0.35 * expected) << tensor_name;
  }
}

TEST_P(SyntheticTypes, LogitsAreFiniteAndDiffer) {
  for (const char* shape : {"tiny:", "tiny-moe:", "tiny-wide:", "tiny-hybrid:"}) {
    const auto model = make_synthetic_model("synthetic:" + (shape + GetParam()));
    Evaluator evaluator(*model, {.max_model_len = 16});
    const std::vector<TokenId> tokens{1, 300, 17};
    evaluator.run(tokens, 0, [](int32_t, std::span<const float> logits) {
      EXPECT_NE(logits.front(), logits.back());
      for (float logit : logits)
        ASSERT_TRUE(std::isfinite(logit));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, SyntheticTypes, testing::ValuesIn(types()),
                         [](const auto& test_case) { return test_case.param; });

TEST(Synthetic, TheSameNameGivesTheSameWeights) {
  const auto a = make_synthetic_model("synthetic:tiny:q4_k");
  const auto b = make_synthetic_model("synthetic:tiny:q4_k");
  for (const HostTensor& tensor : a->tensors()) {
    EXPECT_EQ(std::memcmp(tensor.data, b->find_tensor(tensor.name)->data, tensor.bytes()), 0) << tensor.name;
  }
}

TEST(Synthetic, LayersHaveTheirKindsOfHeads) {
  const ModelConfig config = synthetic_config("gemma-4-31b");
  EXPECT_EQ(config.heads(0), (LayerHeads{16, 256, 1.0f}));
  EXPECT_EQ(config.heads(5), (LayerHeads{4, 512, 1.0f}));
  EXPECT_EQ(config.rotary_size_of(0), 256);
  EXPECT_EQ(config.rotary_size_of(5), 512);
  EXPECT_EQ(attention_kinds_of(config, 4096), (std::vector<AttentionKind>{{16, 256, 1024}, {4, 512}}));
  const auto nothing = [](std::string_view) { return false; };
  const auto model = make_synthetic_model("gemma-4-31b", nothing);
  EXPECT_EQ(model->find_tensor("blk.0.attn_v.weight")->rows, 4096);
  EXPECT_EQ(model->find_tensor("blk.5.attn_v.weight"), nullptr) << "values are keys";
  EXPECT_EQ(model->find_tensor("blk.5.attn_output.weight")->cols, 16384);
  int64_t parameters = 0;
  for (const HostTensor& tensor : model->tensors())
    parameters += tensor.rows * tensor.cols;
  EXPECT_NEAR(static_cast<double>(parameters) * 1e-9, 30.7, 0.05);
}

TEST(Synthetic, TheReferenceModelHas272MillionParameters) {
  const auto model = make_synthetic_model("synthetic:llama-272m:q2_k");
  int64_t parameters = 0;
  for (const HostTensor& tensor : model->tensors())
    parameters += tensor.rows * tensor.cols;
  EXPECT_NEAR(static_cast<double>(parameters) * 1e-6, 272.0, 0.5);
}

TEST(Synthetic, UnknownNamesListTheKnown) {
  for (const auto& [spec, known] : std::vector<std::pair<std::string, std::string>>{
           {"synthetic:llama-9", "llama-3.1-8b"}, {"synthetic:tiny:q9", "q4_k_m"}, {"synthetic:", "tiny"}}) {
    try {
      make_synthetic_model(spec);
      FAIL() << spec;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(known));
    }
  }
}

TEST(Synthetic, LayersShareTheMemoryOfTheirExpertsButNotTheirWeights) {
  for (const char* type : {"bf16", "q4_k_m"}) {
    const auto model = make_synthetic_model(std::string("synthetic:tiny-moe:") + type);
    for (const char* part : {"gate", "up", "down"}) {
      const HostTensor* first = model->find_tensor(fmt::format("blk.0.ffn_{}_exps.weight", part));
      const HostTensor* second = model->find_tensor(fmt::format("blk.1.ffn_{}_exps.weight", part));
      ASSERT_EQ(first->shape(), (std::vector<int64_t>{8, 256, 256}));
      ASSERT_EQ(second->shape(), first->shape());
      const auto* begin = static_cast<const std::byte*>(first->data);
      const auto* shifted = static_cast<const std::byte*>(second->data);
      EXPECT_NE(std::memcmp(begin, shifted, first->bytes()), 0) << type << " " << part;
      if (first->dtype != second->dtype) continue;  // down of a mix
      EXPECT_GT(shifted, begin) << type << " " << part;
      EXPECT_LT(shifted, begin + first->bytes()) << type << " " << part;
    }
  }
}

TEST(Synthetic, ExpertsAreTheSameWhateverElseIsMade) {
  const std::string wanted = "blk.1.ffn_up_exps.weight";
  const auto all = make_synthetic_model("synthetic:tiny-moe:q8_0");
  const auto one = make_synthetic_model("synthetic:tiny-moe:q8_0",
                                        [&](std::string_view tensor) { return tensor == wanted; });
  const HostTensor* tensor = one->find_tensor(wanted);
  EXPECT_EQ(one->find_tensor("blk.0.ffn_up_exps.weight")->data, nullptr);
  EXPECT_EQ(std::memcmp(tensor->data, all->find_tensor(wanted)->data, tensor->bytes()), 0);
}

struct Parameters {
  const char* model;
  double billions;         ///< published
  double billions_active;  ///< for each token, including both embedding tables
};

int64_t elements(const HostTensor& tensor) {
  return tensor.count * tensor.rows * tensor.cols;
}

class SyntheticExperts : public testing::TestWithParam<Parameters> {};

TEST_P(SyntheticExperts, HaveThePublishedNumberOfParameters) {
  const auto model = make_synthetic_model(std::string("synthetic:") + GetParam().model,
                                          [](std::string_view) { return false; });
  const ModelConfig& config = model->config();
  double all = 0.0, active = 0.0;
  for (const HostTensor& tensor : model->tensors()) {
    const auto count = static_cast<double>(elements(tensor)) * 1e-9;
    all += count;
    active += tensor.count > 1 ? count * config.num_experts_used / config.num_experts : count;
  }
  EXPECT_NEAR(all / GetParam().billions, 1.0, 0.01);
  EXPECT_NEAR(active / GetParam().billions_active, 1.0, 0.02);
}

INSTANTIATE_TEST_SUITE_P(
    Models, SyntheticExperts,
    testing::Values(Parameters{"qwen3-30b-a3b", 30.5, 3.35}, Parameters{"mixtral-8x7b", 46.7, 12.9},
                    Parameters{"gpt-oss-20b", 20.9, 4.2}, Parameters{"olmoe-1b-7b", 6.92, 1.28},
                    Parameters{"qwen1.5-moe-a2.7b", 14.3, 2.7}, Parameters{"glm-4.5-air", 106.9, 13.4}));

TEST(Synthetic, RowsThatAreNoWholeBlocksHaveSmallerOnes) {
  const auto model =
      make_synthetic_model("synthetic:gpt-oss-20b:q4_k_m", [](std::string_view) { return false; });
  EXPECT_EQ(model->find_tensor("blk.0.ffn_up_exps.weight")->dtype, DType::q5_0);  // 2,880 columns
  EXPECT_EQ(model->find_tensor("output.weight")->dtype, DType::q8_0);             // instead of q6_k
  EXPECT_EQ(model->find_tensor("blk.0.attn_output.weight")->dtype, DType::q4_k);  // 4,096 columns
  for (const HostTensor& tensor : model->tensors())
    EXPECT_EQ(tensor.cols % traits(tensor.dtype).block_elements, 0) << tensor.name;
}

TEST(Synthetic, EveryShapeIsConsistent) {
  for (const char* model : {"llama-3.2-1b", "llama-3.1-8b", "qwen3-0.6b", "qwen3-8b", "mistral-7b",
                            "llama-272m", "qwen3-30b-a3b", "mixtral-8x7b", "tiny", "tiny-moe"}) {
    const ModelConfig config = synthetic_config(std::string("synthetic:") + model);
    EXPECT_EQ(config.num_heads % config.num_kv_heads, 0) << model;
    EXPECT_EQ(config.hidden_size % 256, 0) << model;
    EXPECT_EQ(config.max_ffn_size() % 256, 0) << model;
  }
}

}  // namespace
}  // namespace minfer
