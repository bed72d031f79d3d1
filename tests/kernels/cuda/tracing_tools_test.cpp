// Which tool may hold CUPTI.
#include "kernels/cuda/profiler/tracing_tools.h"

#include <gtest/gtest.h>

namespace minfer::cuda {
namespace {

std::string holder(std::vector<Variable> environment, std::vector<std::string> parents = {}) {
  return likely_holder(environment, parents);
}

TEST(TracingToolsTest, NamesWhoLeavesTraces) {
  EXPECT_EQ(holder({{"PATH", "/usr/bin"}, {"NSYS_PROFILING_SESSION_ID", "123"}}), "Nsight Systems (nsys)");
  EXPECT_EQ(
      holder({{"CUDA_INJECTION64_PATH", "/opt/nvidia/nsight-compute/2025.3/target/libcuda-injection.so"}}),
      "Nsight Compute (ncu)");
  EXPECT_EQ(holder({{"NVTX_INJECTION64_PATH", "/opt/nvidia/nsight-systems/libToolsInjection64.so"}}),
            "Nsight Systems (nsys)");
  EXPECT_EQ(holder({{"CUDA_INJECTION64_PATH", "/opt/agent/libmine.so"}}),
            "/opt/agent/libmine.so, which CUDA_INJECTION64_PATH names");
  EXPECT_EQ(holder({{"CUDA_INJECTION64_PATH", ""}}, {"bash", "ncu", "sshd"}), "Nsight Compute (ncu)");
  EXPECT_EQ(holder({}, {"sh", "nsys"}), "Nsight Systems (nsys)");
  EXPECT_EQ(holder({}, {"compute-sanitizer"}), "compute-sanitizer");
}

TEST(TracingToolsTest, SaysNothingWhereNothingTells) {
  EXPECT_EQ(holder({{"PATH", "/opt/nsight-systems/bin"}}, {"bash", "sshd", "systemd"}), "");
  EXPECT_EQ(holder({}), "");
}

}  // namespace
}  // namespace minfer::cuda
