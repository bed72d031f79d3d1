// poisoned_row_test.cpp on a GPU: with and without graphs, and a step ahead.
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/poisoned_model.h"

namespace minfer {
namespace {

class CudaPoisonedRow : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
    options_.device = DeviceChoice::cuda;
    options_.max_num_seqs = 32;
    options_.num_blocks = 128;
  }
  EngineOptions options_;
};

TEST_F(CudaPoisonedRow, EndsItsRequestAlone) {
  test::expect_only_the_doomed_fail(options_);
}

TEST_F(CudaPoisonedRow, EndsItsRequestAloneWithoutGraphsAndWithoutAStepAhead) {
  options_.cuda_graphs = false;
  test::expect_only_the_doomed_fail(options_);
  options_.steps_ahead = 0;
  test::expect_only_the_doomed_fail(options_);
}

}  // namespace
}  // namespace minfer
