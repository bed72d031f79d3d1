// The prefix cache on disk with a GPU: copies of blocks beside steps that are launched ahead.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

class CudaKvDisk : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
  EngineOptions options(int32_t num_blocks) const {
    EngineOptions options;
    options.device = DeviceChoice::cuda;
    options.dtype = DType::f32;  // so that no near ties are decided by what else is in a step
    options.max_model_len = 256;
    options.max_num_seqs = 4;
    options.num_blocks = num_blocks;
    options.kv_disk.folder = directory_.path() / "kv";
    return options;
  }
  static std::unique_ptr<Engine> make(const EngineOptions& options) {
    return std::make_unique<Engine>(open_model("synthetic:tiny:bf16"), options);
  }
  static Request request(const std::string& id, TokenId first) {
    std::vector<TokenId> prompt;
    for (TokenId i = 0; i < 100; ++i)
      prompt.push_back(first + (7 * i) % 100);
    return test::greedy_request(id, prompt, 20);
  }

  test::TemporaryDirectory directory_;
};

TEST_F(CudaKvDisk, RowsAreCopiedBothWays) {
  constexpr size_t kRow = 48, kRows = 5, kPitch = 80;
  for (const size_t pitch : {kPitch, size_t{1} << 31}) {  // the second is beyond what CUDA copies at once
    const std::unique_ptr<Backend> backend = make_cuda_backend();
    const Buffer device = backend->allocate(pitch * (kRows - 1) + kRow, "test data");
    const Buffer host = backend->allocate_host(2 * kRow * kRows, "test data");
    auto* const from = static_cast<unsigned char*>(host.data());
    auto* const to = from + kRow * kRows;
    for (size_t i = 0; i < kRow * kRows; ++i)
      from[i] = static_cast<unsigned char>(i * 7);
    backend->copy_rows(device.data(), pitch, from, kRow, kRow, kRows);
    backend->copy_rows(to, kRow, device.data(), pitch, kRow, kRows);
    backend->synchronize();
    EXPECT_TRUE(std::equal(from, to, to)) << pitch;
  }
}

TEST_F(CudaKvDisk, ARestartReadsBlocksAndAnswersAlike) {
  std::vector<TokenId> expected;
  {
    const auto engine = make(options(64));
    test::answer_of(*engine, request("computes", 10));
    expected = test::answer_of(*engine, request("hits", 10)).tokens;
    engine->save_kv_cache(std::chrono::minutes(1));
    // Behind a prefix sums may be rounded otherwise, so that the two answers end in different blocks.
    EXPECT_GE(engine->disk_counts()->written, 7);
    EXPECT_LE(engine->disk_counts()->written, 8);
  }
  const auto engine = make(options(64));
  const test::Answer read = test::answer_of(*engine, request("reads", 10));
  EXPECT_EQ(read.tokens, expected);
  EXPECT_EQ(read.last.cached_tokens, 96);
}

TEST_F(CudaKvDisk, EvictedBlocksComeBackBesideOtherSequences) {
  const auto engine = make(options(20));
  std::vector<std::vector<TokenId>> expected;
  for (int round = 0; round < 3; ++round) {
    test::Answers answers;
    for (TokenId i = 0; i < 12; ++i)
      engine->submit(request(std::to_string(i), 10 * i));
    answers.run(*engine);
    for (size_t i = 0; i < 12; ++i) {
      const std::vector<TokenId>& tokens = answers.at(std::to_string(i)).tokens;
      if (round == 0) expected.push_back(tokens);
      EXPECT_EQ(tokens, expected[i]) << round;
    }
  }
  EXPECT_GT(engine->disk_counts()->read, 0);
  EXPECT_EQ(engine->disk_counts()->lost, 0);
  EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
}

}  // namespace
}  // namespace minfer
