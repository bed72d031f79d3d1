// The I/O thread and the background threads beside it.
#include "server/http/event_loop.h"

#include <atomic>
#include <latch>

#include <gtest/gtest.h>

#include "tests/support/wait.h"

namespace minfer {
namespace {

TEST(EventLoopTest, TasksThatTakeLongLeaveAThreadForTheOthers) {
  std::latch may_end(1);
  std::atomic<int> num_begun{0}, num_ended{0}, num_short{0};
  EventLoop loop(2);
  for (int i = 0; i < 3; ++i) {
    loop.run_in_background(
        [&] {
          ++num_begun;
          may_end.wait();
          ++num_ended;
        },
        true);
  }
  for (int i = 0; i < 10; ++i)
    loop.run_in_background([&] { ++num_short; });
  EXPECT_TRUE(test::wait_until([&] { return num_short == 10; }));
  EXPECT_LE(num_begun, 1) << "of those that take long one at a time";
  may_end.count_down();
  EXPECT_TRUE(test::wait_until([&] { return num_ended == 3; }));
}

}  // namespace
}  // namespace minfer
