// How the program ends when the GPU cannot serve it. For a GPU that faults see tests/engine/cuda/cuda_fault_test.cpp.
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

struct Outcome {
  int exit_code;
  std::string err;
};

/// Runs the program in the shell, with these variables set.
Outcome run(const std::string& variables, const std::string& arguments) {
  const test::TemporaryDirectory directory;
  const std::string err = (directory.path() / "stderr").string();
  const std::string command = "MINFER_CEILINGS=skip " + variables + " '" + minfer_binary() + "' " +
                              arguments + " > /dev/null 2> '" + err + "'";
  const int status = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(status)) << arguments << " was killed";
  std::ifstream file(err);
  return {WEXITSTATUS(status), {std::istreambuf_iterator<char>(file), {}}};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class CudaCommands : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaCommands, NoDeviceIsSaid) {
  const Outcome outcome = run("CUDA_VISIBLE_DEVICES=", "run --device cuda x -n 5");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(contains(outcome.err, "no CUDA device was found")) << outcome.err;
  EXPECT_EQ(run("CUDA_VISIBLE_DEVICES=", "run --device auto x -n 5").exit_code, 0) << "the CPU serves then";
}

TEST_F(CudaCommands, TooLittleMemoryIsSaid) {
  const Outcome outcome = run("", "run --device cuda --gpu-memory-utilization 0.0005 x -n 5");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(contains(outcome.err, "gpu-memory-utilization")) << outcome.err;
  const Outcome blocks =
      run("", "run --device cuda --num-blocks 10000000 --model synthetic:llama-3.2-1b:q4_0 x -n 5");
  EXPECT_EQ(blocks.exit_code, 1);
  EXPECT_TRUE(contains(blocks.err, "KV cache") && contains(blocks.err, "free")) << blocks.err;
}

}  // namespace
}  // namespace minfer
