// Counters of a single op against the bytes that it must read.
#include <cstdio>

#include <gtest/gtest.h>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/profiler/range_profiler.h"
#include "tests/support/cuda/cuda_device.h"

namespace minfer {
namespace {

TEST(CudaRangeProfiler, CountsWhatAFillWrites) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  const std::unique_ptr<RangeCounters> counters = cuda::make_range_profiler(0);
  if (counters == nullptr) GTEST_SKIP() << "built without CUPTI's headers";
  constexpr size_t kBytes = size_t{512} << 20;
  const cuda::DeviceBuffer memory(kBytes, "test data");
  const cuda::Stream stream = cuda::make_stream();
  int passes = 0;
  OpCounters found;
  const std::string error = counters->measure(
      [&] {
        ++passes;
        counters->begin_range();
        // An odd size in two dimensions, so that a kernel runs and not a copy engine.
        cuda::check(cudaMemset2DAsync(memory.data(), 4096, passes, 4095, kBytes / 4096, stream.get()),
                    "filling");
        cuda::check(cudaStreamSynchronize(stream.get()), "filling");
        counters->end_range();
      },
      found);
  for (const char* reason : {"(26)", "(27)", "(35)", "(40)", "cannot be loaded", "CUPTI lacks"}) {
    if (error.find(reason) != std::string::npos) GTEST_SKIP() << error;
  }
  ASSERT_EQ(error, "");
  std::printf(
      "%d passes, %.1f us, read %.1f MB, written %.1f MB, L2 hit %.3f, occupancy %.3f, issue %.3f, tensor "
      "%.3f\n",
      passes, found.us, found.read_bytes * 1e-6, found.written_bytes * 1e-6, found.l2_hit, found.occupancy,
      found.issue_active, found.tensor_active);
  for (const auto& [stall, warps] : found.stalls)
    std::printf("  %s %.3f\n", stall.c_str(), warps);
  EXPECT_GT(passes, 1);
  // Data that is still in the cache at the end has not been written yet.
  EXPECT_NEAR(found.written_bytes / static_cast<double>(kBytes), 0.95, 0.2);
  EXPECT_GT(found.occupancy, 0.0);
  EXPECT_FALSE(found.stalls.empty());

  OpCounters again;
  EXPECT_EQ(counters->measure(
                [&] {
                  counters->begin_range();
                  cuda::check(cudaMemset2DAsync(memory.data(), 4096, 1, 4095, 64, stream.get()), "filling");
                  cuda::check(cudaStreamSynchronize(stream.get()), "filling");
                  counters->end_range();
                },
                again),
            "");
  EXPECT_LT(again.us, found.us);
}

}  // namespace
}  // namespace minfer
