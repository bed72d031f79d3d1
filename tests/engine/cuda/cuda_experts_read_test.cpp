// The experts that a GPU's steps read, counted by the router's kernel, against the CPU backend's choices for the same tokens. In f32
// both choose alike. While three sequences decode, a graph has a token of padding, whose experts do not count.
#include <gtest/gtest.h>

#include "models/decoder/weights/model_source.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/expert_counts.h"
#include "tests/support/last_steps.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

EngineOptions options_on(DeviceChoice device, bool graphs) {
  EngineOptions options;
  options.device = device;
  if (device == DeviceChoice::cuda) options.dtype = DType::f32;
  options.cuda_graphs = graphs;
  options.max_model_len = 64;
  options.num_blocks = 64;
  options.steps_ahead = 0;
  options.threads = 1;
  return options;
}

TEST(CudaExpertsRead, AreThoseOfTheCpu) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  for (const char* model : {"mixtral", "qwen3moe", "qwen2moe", "glm4moe", "llama4"}) {
    const std::string path = source_path("tests/golden/") + model + ".gguf";
    auto backend = std::make_unique<test::CountingBackend>();
    const std::vector<int32_t>& expected = backend->counts;
    Engine cpu(open_model(path), options_on(DeviceChoice::cpu, false), {}, std::move(backend));
    test::run_three_requests(cpu);
    ASSERT_FALSE(expected.empty());
    for (const bool graphs : {false, true}) {
      Engine cuda(open_model(path), options_on(DeviceChoice::cuda, graphs));
      test::run_three_requests(cuda);
      EXPECT_EQ(test::experts_read(cuda, "moe_gate_up_swiglu"), expected) << model << ", graphs " << graphs;
      EXPECT_EQ(test::experts_read(cuda, "moe_down"), expected) << model << ", graphs " << graphs;
      bool is_padded = false;
      for (const StepRecord& record : test::last_steps(cuda.recorder(), 4096))
        is_padded |= record.batch.padded_tokens > 0;
      EXPECT_EQ(is_padded, graphs) << model;
    }
  }
}

TEST(CudaExpertsRead, AStepAheadChangesNothing) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  const std::string path = source_path("tests/golden/qwen3moe.gguf");
  EngineOptions options = options_on(DeviceChoice::cuda, true);
  Engine waiting(open_model(path), options);
  test::run_three_requests(waiting);
  options.steps_ahead = 1;
  Engine ahead(open_model(path), options);
  test::run_three_requests(ahead);
  const std::vector<int32_t> counts = test::experts_read(ahead, "moe_down");
  const std::vector<int32_t> expected = test::experts_read(waiting, "moe_down");
  ASSERT_GE(counts.size(), expected.size()) << "a step too many where a request ended";
  EXPECT_EQ(counts.front(), expected.front());
  for (const int32_t experts : counts)
    EXPECT_GT(experts, 0);
}

}  // namespace
}  // namespace minfer
