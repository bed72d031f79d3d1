// Whole models whose weights are quantised to fp8 at load: close to the original, and as repeatable as without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/evaluator.h"
#include "models/decoder/weights/quantise.h"
#include "tests/reference/quantise.h"
#include "tests/support/engine/tiny_engine.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/models/logit_run.h"
#include "tests/support/models/tiny_model.h"

namespace minfer {
namespace {

using test::LogitJob;
using test::LogitRun;
using test::LogitTrace;
using ::testing::HasSubstr;

constexpr std::optional<DType> kAsTheyAre = std::nullopt;

EngineOptions options_with(std::optional<DType> quantization, int32_t ranks = 1) {
  EngineOptions options = test::tiny_engine_options();
  options.device = DeviceChoice::cpu;
  options.quantization = quantization;
  options.tensor_parallel_size = ranks;
  options.threads = ranks;
  return options;
}

std::vector<float> logits_of(const ModelSource& source, std::optional<DType> quantization,
                             int32_t ranks = 1) {
  EngineOptions options = options_with(quantization, ranks);
  options.max_model_len = 48;
  Evaluator evaluator(source, options);
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < 48; ++i)
    tokens.push_back(37 * i % evaluator.vocab_size());
  std::vector<float> logits;
  evaluator.run(tokens, 0, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

double error_of(const std::string& model, int32_t ranks = 1) {
  const auto source = open_model(model);
  return test::nmse(logits_of(*source, DType::fp8, ranks), logits_of(*source, kAsTheyAre));
}

/// A model of 14 matrices with random weights has 8e-3. Each matrix alone has 7e-4.
constexpr double kMostError = 1.2e-2;

TEST(QuantizationTest, Fp8IsCloseToWhatTheWeightsWere) {
  for (const char* type : {"f32", "f16", "bf16"}) {
    const double error = error_of(std::string("synthetic:tiny:") + type);
    EXPECT_LT(error, kMostError) << type;
    EXPECT_GT(error, 1e-3) << type << ": nothing was quantised";
  }
}

/// A rank uses the scales of its own columns, so its error is as small, but its values are not the same.
TEST(QuantizationTest, RanksAreAsClose) {
  for (const int32_t ranks : {2, 4})
    EXPECT_LT(error_of("synthetic:tiny:bf16", ranks), kMostError) << ranks;
}

/// The same model with its values rounded to those of fp8.
std::vector<std::byte> with_rounded_weights(test::ModelParts parts, const ModelSource& source) {
  for (const HostTensor& tensor : tensors_to_load(source.tensors(), DType::fp8, source.name())) {
    if (!tensor.quantise_to) continue;
    test::ByteWriter values;
    for (const double value : reference::loaded_values(tensor).data)
      values.put(static_cast<float>(value));
    parts.tensors[tensor.name].data = values.bytes();
  }
  return parts.build();
}

TEST(QuantizationTest, GivesTheLogitsOfAModelWithTheRoundedWeights) {
  for (const auto& [family, experts] : {std::pair("llama", 0), {"llama", 4}, {"qwen3", 0}, {"qwen3moe", 4}}) {
    const test::ModelParts parts = test::tiny_model(family, experts);
    const std::vector<std::byte> bytes = parts.build();
    const auto source = open_model_in_memory(bytes, "as it was");
    const std::vector<std::byte> rounded_bytes = with_rounded_weights(parts, *source);
    const auto rounded = open_model_in_memory(rounded_bytes, "rounded");
    const std::vector<float> logits = logits_of(*source, DType::fp8);
    EXPECT_LT(test::nmse(logits, logits_of(*rounded, kAsTheyAre)), 1e-10) << family << experts;
    EXPECT_NE(logits, logits_of(*source, kAsTheyAre)) << family << experts;
  }
}

TEST(QuantizationTest, LogitsDoNotDependOnTheBatchOrOnThreads) {
  const auto source = open_model("synthetic:tiny:bf16");
  std::vector<LogitJob> jobs;
  for (int32_t i = 0; i < 6; ++i) {
    LogitJob& job = jobs.emplace_back();
    for (int32_t t = 0; t < 1 + 9 * i; ++t)
      job.prompt.push_back((31 * t + 7 * i) % 512);
  }
  const std::vector<LogitTrace> together = LogitRun(*source, options_with(DType::fp8)).run(jobs);
  EngineOptions options = options_with(DType::fp8);
  options.threads = 2;
  options.max_num_batched_tokens = 7;
  const std::vector<LogitTrace> in_pieces = LogitRun(*source, options).run(jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const LogitTrace alone = LogitRun(*source, options_with(DType::fp8)).run({jobs[i]}).front();
    EXPECT_TRUE(together[i].same_bits(alone)) << i;
    EXPECT_TRUE(in_pieces[i].same_bits(alone)) << i;
  }
  EXPECT_FALSE(LogitRun(*source, options_with(kAsTheyAre)).run({jobs[3]}).front().same_bits(together[3]));
}

TEST(QuantizationTest, StepsCountTheBytesOfWhatTheWeightsHaveBecome) {
  const auto bytes = [](std::optional<DType> quantization) {
    Engine engine(open_model("synthetic:tiny:bf16"), options_with(quantization));
    int64_t read = 0, of_file = 0;
    for (const OpInfo& op : engine.ops()) {
      if (op.layer < 0 || op.kind == OpKind::rms_norm) continue;
      read += op.weight_bytes;
      of_file += op.file_bytes;
      if (op.weight_bytes > 0) {
        EXPECT_EQ(op.converted, quantization ? "bf16 to fp8" : "") << op.name;
      }
    }
    return std::pair(read, of_file);
  };
  const auto [plain, none] = bytes(kAsTheyAre);
  const auto [quantised, of_file] = bytes(DType::fp8);
  EXPECT_EQ(none, 0);
  EXPECT_EQ(of_file, plain);
  EXPECT_EQ(quantised, plain * 65 / 128) << "130 bytes for 128 elements";
}

TEST(QuantizationTest, AModelWithNothingToQuantiseIsRefused) {
  try {
    Engine engine(open_model("synthetic:tiny:q4_k_m"), options_with(DType::fp8));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("quantization: synthetic:tiny:q4_k_m: the matrices of its layers are q4_k, "
                          "q6_k, expected some of f32, f16 or bf16 to become fp8"));
  }
}

}  // namespace
}  // namespace minfer
