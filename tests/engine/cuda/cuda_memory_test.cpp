// The GPU memory that the engine reports as taken, against the memory that the driver reports as used.
#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/engine_run.h"

namespace minfer {
namespace {

const MemoryPart* part_of(const MemoryUse& memory, std::string_view what) {
  const auto found = std::ranges::find(memory.parts, what, &MemoryPart::what);
  return found == memory.parts.end() ? nullptr : &*found;
}

TEST(CudaMemory, IsExplained) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  constexpr int64_t kKvBytes = int64_t{8} << 30;
  MemoryUse memory;
  {
    EngineOptions options;
    options.device = DeviceChoice::cuda;
    options.kv_cache_bytes = kKvBytes;
    options.max_model_len = 1024;
    Engine engine(open_model("synthetic:llama-3.2-1b:bf16"), options);
    for (int i = 0; i < 3; ++i)
      test::answer_of(engine, test::greedy_request(std::to_string(i), {1, 2, 3}, 20));
    memory = engine.memory_use();
    const MemoryPart* weights = part_of(memory, "weights");
    ASSERT_NE(weights, nullptr);
    EXPECT_GT(weights->bytes, int64_t{2} << 30);
    const MemoryPart* staging = part_of(memory, "staging of weights");
    ASSERT_NE(staging, nullptr);
    EXPECT_EQ(staging->bytes, 0) << "given back when the weights were loaded";
    EXPECT_GT(staging->most_bytes, 0);
    const MemoryPart* kv = part_of(memory, "KV cache");
    ASSERT_NE(kv, nullptr);
    EXPECT_NEAR(static_cast<double>(kv->bytes), static_cast<double>(kKvBytes), 1e8);
    ASSERT_NE(part_of(memory, "graphs"), nullptr);
  }
  const auto used = static_cast<double>(memory.used_bytes);
  for (const MemoryPart& part : memory.parts)
    std::printf("%10.1f MiB %s%s\n", static_cast<double>(part.bytes) / (1 << 20), part.what.c_str(),
                part.on_device ? "" : " (page-locked)");
  std::printf("%10.1f MiB before, %.1f MiB not explained, of %.1f MiB in use\n",
              static_cast<double>(memory.used_before_bytes) / (1 << 20),
              static_cast<double>(memory.unexplained_bytes()) / (1 << 20), used / (1 << 20));
  EXPECT_LT(std::abs(static_cast<double>(memory.unexplained_bytes())), 0.02 * used);
}

}  // namespace
}  // namespace minfer
