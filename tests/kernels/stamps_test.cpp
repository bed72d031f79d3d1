#include "kernels/stamps.h"

#include <gtest/gtest.h>

namespace minfer {
namespace {

StepStamps::Stamp stamped_op(int64_t begin_ns, int64_t end_ns) {
  return {.op = 0, .begin_ns = begin_ns, .end_ns = end_ns};
}

TEST(StepStamps, AnOpOfAGraphThatStampedLateBeganBehindTheOneInFront) {
  StepStamps stamps;
  stamps.add(stamped_op(10'000, 20'000));
  stamps.add(stamped_op(20'600, 30'000));
  stamps.add(stamped_op(36'000, 0));
  EXPECT_EQ(stamps.ops[0].begin_ns, 10'000);
  EXPECT_EQ(stamps.ops[1].begin_ns, 20'600);
  EXPECT_EQ(stamps.ops[2].begin_ns, 30'000 + StepStamps::kLaunchNs);
}

TEST(StepStamps, AnOpThatTheHostLaunchedBeganWhenItWasStamped) {
  StepStamps stamps;
  stamps.add(stamped_op(10'000, 20'000));
  StepStamps::Stamp late = stamped_op(36'000, 0);
  late.launched_ns = 35'000;
  stamps.add(late);
  EXPECT_EQ(stamps.ops[1].begin_ns, 36'000) << "the device may have idled";
}

TEST(StepStamps, AnOpWithoutAStampBeginsAtTheEndOfTheOneInFront) {
  StepStamps stamps;
  stamps.add(stamped_op(10'000, 20'000));
  stamps.add(stamped_op(0, 0));
  stamps.add(stamped_op(40'000, 0));
  EXPECT_EQ(stamps.ops[1].begin_ns, 20'000 + StepStamps::kLaunchNs);
  EXPECT_EQ(stamps.ops[2].begin_ns, 40'000) << "the end in front is not known";
}

TEST(StepStamps, BeginsNeverFall) {
  StepStamps stamps;
  stamps.add(stamped_op(10'000, 0));
  stamps.add(stamped_op(0, 0));
  stamps.add(stamped_op(9'000, 8'000));
  stamps.add(stamped_op(9'500, 0));
  for (const StepStamps::Stamp& stamp : stamps.ops)
    EXPECT_EQ(stamp.begin_ns, 10'000);
}

TEST(StepStamps, LaunchesAreSplitByOp) {
  StepStamps::Stamp two{.num_launches = 2}, none{}, wrong{.num_launches = -1}, more{.num_launches = 5};
  const std::vector<int32_t> launches{7, 8, 9};
  std::span<const int32_t> rest = launches;
  EXPECT_EQ(StepStamps::take_launches(two, rest).size(), 2u);
  EXPECT_TRUE(StepStamps::take_launches(none, rest).empty());
  EXPECT_TRUE(StepStamps::take_launches(wrong, rest).empty());
  EXPECT_EQ(StepStamps::take_launches(more, rest).front(), 9);
  EXPECT_TRUE(rest.empty());
}

}  // namespace
}  // namespace minfer
