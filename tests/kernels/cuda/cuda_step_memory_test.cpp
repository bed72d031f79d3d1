// Memory that must be zero before the first step, and the limit on a step's stamps.
#include <chrono>
#include <condition_variable>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/product/operands/product_args.h"
#include "kernels/cuda/step/step_memory.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/refusal.h"

namespace minfer::cuda {
namespace {

StepLimits small_limits() {
  return {.max_tokens = 4,
          .max_sequences = 4,
          .max_logit_rows = 4,
          .logit_slice = 4,
          .max_blocks = 2,
          .max_stamps = 5,
          .vocab_size = 64,
          .hidden_size = 64,
          .ffn_size = 64,
          .qkv_size = 192,
          .heads = 1,
          .head_size = 64,
          .attention_kinds = {{.kv_heads = 1, .head_size = 64}}};
}

/// Holds up the default stream. It lets go by itself: code that waits for the stream, as it should, would otherwise wait for ever.
class HeldDefaultStream {
 public:
  HeldDefaultStream() { check(cudaLaunchHostFunc(nullptr, hold, this), "holding the default stream"); }
  ~HeldDefaultStream() {
    {
      const std::lock_guard lock(mutex_);
      released_ = true;
    }
    changed_.notify_all();
    cudaStreamSynchronize(nullptr);
  }
  HeldDefaultStream(const HeldDefaultStream&) = delete;
  HeldDefaultStream& operator=(const HeldDefaultStream&) = delete;
  bool has_gone_on() {
    const std::lock_guard lock(mutex_);
    return gone_on_;
  }

 private:
  static void hold(void* data) {
    auto& held = *static_cast<HeldDefaultStream*>(data);
    std::unique_lock lock(held.mutex_);
    held.changed_.wait_for(lock, std::chrono::seconds(1), [&held] { return held.released_; });
    held.gone_on_ = true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false, gone_on_ = false;
};

/// Memory cleared on the default stream is not cleared yet when a step's stream reads it, unless somebody has waited.
TEST(CudaStepMemory, MemoryIsZeroBeforeAStepCanReadIt) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  {
    HeldDefaultStream held;
    const ProductWorkspace workspace(132);
    EXPECT_TRUE(held.has_gone_on()) << "arrivals of products";
  }
  {
    HeldDefaultStream held;
    const StepMemory memory(small_limits());
    EXPECT_TRUE(held.has_gone_on()) << "step memory";
  }
  {
    HeldDefaultStream held;
    const AttentionOps attention(132, small_limits());
    EXPECT_TRUE(held.has_gone_on()) << "counters of attention";
  }
}

TEST(CudaStepMemory, RefusesMoreOpsThanItsLimits) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  const StepMemory memory(small_limits());
  EXPECT_EQ(memory.stamp(15), memory.stamp(0) + 15)
      << "begin, end and arrival of five ops, and the step's end";
  EXPECT_THAT(test::refusal_of([&] { memory.stamp(16); }),
              testing::HasSubstr("more ops than its limits say"));
}

}  // namespace
}  // namespace minfer::cuda
