// Two GPUs in two processes, connected by a socket instead of MPI, give the results of one, and end together.
#include <csignal>

#include <gmock/gmock.h>

#include "kernels/cuda/device/devices.h"
#include "tests/support/engine/second_process.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using testing::HasSubstr;

constexpr const char* kSecond = "CudaTwoProcesses.SecondFollows";

std::string name_of(AllReduceChoice choice) {
  return choice == AllReduceChoice::peer ? "peer" : choice == AllReduceChoice::nccl ? "nccl" : "automatic";
}

TEST(CudaTwoProcesses, SecondFollows) {
  EXPECT_NO_THROW(test::follow_first());
}

class CudaTwoProcessesBy : public testing::TestWithParam<std::tuple<AllReduceChoice, bool>> {
 protected:
  void SetUp() override {
    if (cuda_devices().size() < 2) GTEST_SKIP() << "fewer than two CUDA devices";
  }
  static test::ProcessJob job(const std::string& model) {
    test::ProcessJob result;
    result.model = model;
    result.device = DeviceChoice::cuda;
    result.all_reduce = std::get<0>(GetParam());
    result.graphs = std::get<1>(GetParam());
    result.rank_timeout_s = 120;  // for a slow machine, and under tools that slow kernels down
    return result;
  }
};

TEST_P(CudaTwoProcessesBy, GiveTheLogitsOfOne) {
  test::expect_logits_of_one(kSecond, job("synthetic:tiny:f32"));
  test::expect_logits_of_one(kSecond, job(source_path("tests/golden/mixtral.gguf")));
}

TEST_P(CudaTwoProcessesBy, AnswerAsOneDoes) {
  test::expect_answers_of_one(kSecond, job(""));
}

TEST_P(CudaTwoProcessesBy, OneThatIsKilledEndsTheOther) {
  EXPECT_THAT(test::failure_after(kSecond, job(""), SIGKILL),
              testing::AllOf(HasSubstr("rank 1 (host this-host"), HasSubstr("has gone")));
}

TEST_P(CudaTwoProcessesBy, OneThatHangsEndsTheOther) {
  test::ProcessJob hanging = job("");
  hanging.rank_timeout_s = 2;
  EXPECT_THAT(test::failure_after(kSecond, hanging, SIGSTOP), HasSubstr("waited 2000 ms for"));
}

INSTANTIATE_TEST_SUITE_P(Ways, CudaTwoProcessesBy,
                         testing::Combine(testing::Values(AllReduceChoice::peer, AllReduceChoice::nccl,
                                                          AllReduceChoice::automatic),
                                          testing::Bool()),
                         [](const auto& param) {
                           return name_of(std::get<0>(param.param)) +
                                  (std::get<1>(param.param) ? "_graphs" : "_eager");
                         });

}  // namespace
}  // namespace minfer
