// Two ranks in two processes, connected by a socket instead of MPI, give the results of one, and end together.
#include <csignal>

#include <gmock/gmock.h>

#include "tests/support/engine/second_process.h"

namespace minfer {
namespace {

using testing::HasSubstr;

constexpr const char* kSecond = "TwoProcesses.SecondFollows";

TEST(TwoProcesses, SecondFollows) {
  EXPECT_NO_THROW(test::follow_first());
}

TEST(TwoProcesses, GiveTheLogitsOfOne) {
  test::ProcessJob job;
  job.model = "synthetic:tiny:f32";
  test::expect_logits_of_one(kSecond, job);
}

TEST(TwoProcesses, AnswerAsOneDoes) {
  test::expect_answers_of_one(kSecond, {});
}

TEST(TwoProcesses, OneThatIsKilledEndsTheOther) {
  EXPECT_THAT(test::failure_after(kSecond, {}, SIGKILL),
              testing::AllOf(HasSubstr("rank 1 (host this-host"), HasSubstr("has gone")));
}

TEST(TwoProcesses, OneThatHangsEndsTheOther) {
  test::ProcessJob hanging;
  hanging.rank_timeout_s = 2;
  EXPECT_THAT(test::failure_after(kSecond, hanging, SIGSTOP), HasSubstr("waited 2000 ms for"));
}

}  // namespace
}  // namespace minfer
