// The I/O thread and the background threads beside it.
#include "server/http/event_loop.h"

#include <atomic>
#include <latch>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "server/http/memory_reserve.h"
#include "tests/support/allocations.h"
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

// However many are queued, for example while grammars that take seconds are compiled.
TEST(EventLoopTest, TasksApartHoldUpEachOtherOnly) {
  std::latch may_end(1);
  std::atomic<int> num_begun{0}, num_ended{0}, num_short{0};
  EventLoop loop(2);
  for (int i = 0; i < 3; ++i) {
    loop.run_apart([&] {
      ++num_begun;
      may_end.wait();
      ++num_ended;
    });
  }
  std::latch both(2);  // at the same time
  for (int i = 0; i < 2; ++i) {
    loop.run_in_background([&] {
      both.arrive_and_wait();
      ++num_short;
    });
  }
  EXPECT_TRUE(test::wait_until([&] { return num_short == 2; }));
  EXPECT_LE(num_begun, 1);
  may_end.count_down();
  EXPECT_TRUE(test::wait_until([&] { return num_ended == 3; }));
}

/// A text whose memory no compiler optimises away.
std::string text_of(size_t size) {
  const volatile size_t unknown = size;
  return std::string(unknown, 'a');
}

/// Started threads wait for work, and a pool of Boost's would have waited for them.
TEST(EventLoopTest, AStartWithoutAllOfItsThreadsEnds) {
  if (!test::counts_allocations()) GTEST_SKIP() << "a sanitizer has its own operator new";
  { const EventLoop first(3); }  // allocates what Boost keeps for a thread
  const uint64_t before = test::thread_allocations();
  { const EventLoop whole(3); }
  const auto count = static_cast<int64_t>(test::thread_allocations() - before);
  for (int64_t after = count - 5; after < count; ++after) {  // the threads' allocations come last
    test::refuse_allocation(after);
    EXPECT_THROW(EventLoop(3), Error) << after << " of " << count;
    test::refuse_allocation(-1);
  }
}

TEST(EventLoopTest, ATaskWithoutMemoryEndsAloneAndSmallThingsAreServedFromTheReserve) {
  if (!test::counts_allocations()) GTEST_SKIP() << "a sanitizer has its own operator new";
  EventLoop loop(1);
  bool has_thrown = false;
  std::atomic<bool> has_run{false};
  loop.run_in_background([] { throw std::bad_alloc(); });
  loop.run_in_background([&] { has_run = true; });
  loop.post([] { throw std::bad_alloc(); });
  loop.post([&] {
    test::refuse_allocation(0);
    EXPECT_EQ(text_of(1000).back(), 'a');
    const ClientSizedAllocations client_sized;
    test::refuse_allocation(0);
    try {
      EXPECT_EQ(text_of(1000).back(), 'a');
    } catch (const std::bad_alloc&) {
      has_thrown = true;
    }
    loop.stop();
  });
  loop.run();
  EXPECT_TRUE(has_thrown);
  EXPECT_TRUE(test::wait_until([&] { return has_run.load(); }));
}

}  // namespace
}  // namespace minfer
