// Processes whose GPUs cannot work together get the same error in all of them. Threads stand for the processes.
#include <gmock/gmock.h>

#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "kernels/cuda/device/devices.h"
#include "tests/support/memory_transport.h"

namespace minfer {
namespace {

TEST(CudaProcessRanks, AHostWithTooFewGpusIsAnErrorOfAll) {
  const size_t found = cuda_devices().size();
  if (found > 1) GTEST_SKIP() << found << " CUDA devices";
  test::run_as_processes(3, [&](const std::shared_ptr<ProcessGroup>& processes) {  // two of them on host a
    CudaRanksOptions options;
    options.count = 3;
    options.processes = processes;
    try {
      make_cuda_ranks(options);
      ADD_FAILURE() << "3 ranks";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  testing::HasSubstr("host a has " + std::to_string(found) + " GPUs, 2 are needed"));
    }
    processes->end_in_order(std::chrono::seconds(60));
  });
}

}  // namespace
}  // namespace minfer
