// A kernel that faults: every later step throws the error that the device reported.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include <gtest/gtest.h>

#include "kernels/base/error_types.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/engine_run.h"

namespace minfer {
namespace {

/// Reads unmapped memory.
void launch_fault(Backend& backend) {
  static const Buffer memory = backend.allocate(4096, "test data");
  const Tensor tensor{.data = memory.data(), .dtype = DType::f32, .rows = 1, .cols = 4, .stride = 4};
  backend.gather_rows(-1, tensor, reinterpret_cast<const int32_t*>(uintptr_t{16}), tensor);
}

bool throws_device_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const DeviceError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return true;
  }
  return false;
}

/// Exits with 1 if the steps that follow the fault report it, and everything after them too.
[[noreturn]] void fault_after(int num_steps) {
  std::unique_ptr<Backend> owned = make_cuda_backend();
  Backend& backend = *owned;
  Engine engine(open_model(""), {.device = DeviceChoice::cuda, .max_num_seqs = 4, .num_blocks = 64}, {},
                std::move(owned));
  engine.submit(test::greedy_request("a", {5, 6, 7}, 50));
  for (int step = 0; step < num_steps; ++step)
    engine.step();
  launch_fault(backend);
  const bool steps_fail = throws_device_error([&] {
    for (int step = 0; step < 3; ++step)
      engine.step();
  });
  std::_Exit(steps_fail && throws_device_error([&] { backend.synchronize(); }) ? 1 : 2);
}

/// In separate processes: any work after a fault in the same process would fail as well.
TEST(CudaFaultDeathTest, AKernelThatFaultsFailsEveryStepFromThenOn) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const int num_steps : {0, 7})
    EXPECT_EXIT(fault_after(num_steps), testing::ExitedWithCode(1), "illegal memory access");
}

}  // namespace
}  // namespace minfer
