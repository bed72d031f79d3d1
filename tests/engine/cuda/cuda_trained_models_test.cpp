// Trained models on CUDA against Hugging Face transformers in float64: in f32, and as people run them. Skipped if the files are missing;
// $MINFER_TEST_MODELS names their folder.

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/trained_model.h"

namespace minfer {
namespace {

class CudaTrainedModels : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
    const auto path = test::trained_model(GetParam());
    if (!path) GTEST_SKIP() << test::kNoTrainedModel;
    path_ = path->string();
  }

  static EngineOptions options(std::optional<DType> dtype, int32_t num_batched_tokens) {
    EngineOptions options;
    options.device = DeviceChoice::cuda;
    options.dtype = dtype;
    options.max_model_len = 2048;
    options.max_num_seqs = 8;
    options.kv_cache_bytes = int64_t{256} << 20;
    options.max_num_batched_tokens = num_batched_tokens;
    return options;
  }

  std::string path_;
};

TEST_P(CudaTrainedModels, TextsAgreeWithTransformersInF32WholeAndInPieces) {
  for (const char* text : {"story", "code", "languages"}) {
    const nlohmann::json reference = test::trained_reference(GetParam()).at("texts").at(text);
    for (const int32_t num_batched_tokens : {2048, 100}) {
      const test::TextRun run =
          test::run_text(path_, GetParam(), text, options(DType::f32, num_batched_tokens));
      EXPECT_LT(run.nmse, 1e-8) << text;
      EXPECT_EQ(run.num_first_right, std::ssize(run.rows)) << text;
      EXPECT_EQ(run.first_choices, reference.at("all_first").get<std::string>()) << text;
      EXPECT_NEAR(run.mean_loss, reference.at("mean_loss").get<double>(), 1e-4) << text;
    }
  }
}

// Activations in bf16, and quantised weights that are rounded for the tensor cores.
TEST_P(CudaTrainedModels, TextsAgreeWithTransformersInBf16) {
  for (const char* text : {"story", "code", "languages"}) {
    const test::TextRun run = test::run_text(path_, GetParam(), text, options({}, 512));
    EXPECT_LT(run.nmse, 3e-3) << text;
    EXPECT_GE(run.num_first_right, std::ssize(run.rows) - 2) << text;
    EXPECT_NEAR(run.mean_loss,
                test::trained_reference(GetParam()).at("texts").at(text).at("mean_loss").get<double>(), 0.02)
        << text;
  }
}

TEST_P(CudaTrainedModels, ContinuationsInF32AreThoseOfTransformers) {
  const nlohmann::json reference = test::trained_reference(GetParam());
  for (const bool cuda_graphs : {true, false}) {
    EngineOptions chosen = options(DType::f32, 64);
    chosen.cuda_graphs = cuda_graphs;
    EXPECT_EQ(test::num_equal_continuations(path_, reference, chosen), reference.at("greedy").size());
  }
}

INSTANTIATE_TEST_SUITE_P(Files, CudaTrainedModels, testing::Values(test::kSmolLm2, test::kGemma3),
                         [](const auto& test_case) {
                           std::string label = test_case.param;
                           std::ranges::replace(label, '-', '_');
                           return label;
                         });

}  // namespace
}  // namespace minfer
