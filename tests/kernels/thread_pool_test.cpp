#include "kernels/base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "kernels/base/error.h"
#include "tests/support/allocations.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;

/// Counts how often each piece of a loop ran.
std::vector<int> counts_of(ThreadPool& pool, int64_t pieces) {
  std::vector<int> counts(static_cast<size_t>(pieces));
  pool.parallel_for(pieces, [&](int64_t piece, int32_t) { ++counts[static_cast<size_t>(piece)]; });
  return counts;
}

std::vector<int> ones(int64_t count) {
  return std::vector<int>(static_cast<size_t>(count), 1);
}

TEST(NumCores, AreThoseOfTheAffinity) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(num_cores(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(num_cores(), 1);
  EXPECT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(PartOf, PartsFollowEachOtherAndDifferByOneAtMost) {
  for (const int64_t count : {0, 1, 7, 64, 1000}) {
    for (const int64_t parts : {1, 2, 3, 7, 64}) {
      int64_t end = 0;
      for (int64_t part = 0; part < parts; ++part) {
        const IndexRange range = part_of(count, part, parts);
        EXPECT_EQ(range.begin, end);
        EXPECT_GE(range.size(), count / parts);
        EXPECT_LE(range.size(), count / parts + 1);
        end = range.end;
      }
      EXPECT_EQ(end, count);
    }
  }
}

TEST(ThreadPool, RunsEveryPieceOnce) {
  for (const int32_t threads : {1, 2, 3, 5, 16}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t pieces : {0, 1, 2, 3, 7, 100, 1001}) {
      EXPECT_EQ(counts_of(pool, pieces), ones(pieces)) << threads << " threads, " << pieces << " pieces";
    }
  }
}

TEST(ThreadPool, NoTwoPiecesRunAsTheSameThread) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> running(4);
  std::atomic<int> clashes{0};
  pool.parallel_for(400, [&](int64_t, int32_t thread) {
    if (running[static_cast<size_t>(thread)].fetch_add(1) != 0) ++clashes;
    std::this_thread::yield();
    running[static_cast<size_t>(thread)].fetch_sub(1);
  });
  EXPECT_EQ(clashes, 0);
}

TEST(ThreadPool, WorkersTakePart) {
  ThreadPool pool(3);
  // Each piece waits for the others, so the loop ends only if three threads take part.
  std::atomic<int> arrived{0};
  std::vector<std::thread::id> ids(3);
  pool.parallel_for(3, [&](int64_t, int32_t thread) {
    ids[static_cast<size_t>(thread)] = std::this_thread::get_id();
    ++arrived;
    while (arrived < 3)
      std::this_thread::yield();
  });
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), 3u);
  EXPECT_EQ(ids[0], std::this_thread::get_id());
}

TEST(ThreadPool, ASinglePieceRunsOnTheCaller) {
  ThreadPool pool(3);
  pool.parallel_for(1, [&, caller = std::this_thread::get_id()](int64_t piece, int32_t thread) {
    EXPECT_EQ(piece, 0);
    EXPECT_EQ(thread, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
}

TEST(ThreadPool, ALoopSeesWhatTheOneBeforeWrote) {
  ThreadPool pool(3);
  constexpr int64_t kPieces = 8;
  constexpr int kRounds = 3000;
  std::vector<int64_t> values(kPieces, 0);  // not atomic: loops order all accesses
  for (int round = 0; round < kRounds; ++round) {
    const int64_t before = std::accumulate(values.begin(), values.end(), int64_t{0});
    ASSERT_EQ(before, round * kPieces);
    pool.parallel_for(kPieces, [&](int64_t piece, int32_t) {
      const auto neighbour = static_cast<size_t>((piece + round) % kPieces);
      ++values[neighbour];
    });
  }
}

TEST(ThreadPool, WakesWorkersThatSleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(2ms);
    std::atomic<int> arrived{0};
    pool.parallel_for(2, [&](int64_t, int32_t) {
      ++arrived;
      while (arrived < 2)
        std::this_thread::yield();
    });
  }
}

TEST(ThreadPool, WaitsForAPieceThatTakesLong) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> begun{0};
    bool ended = false;
    // The caller's piece ends when the worker's has begun. So it is the caller that waits, and long enough to
    // fall asleep.
    pool.parallel_for(2, [&](int64_t, int32_t thread) {
      ++begun;
      while (begun < 2)
        std::this_thread::yield();
      if (thread == 0) return;
      std::this_thread::sleep_for(2ms);
      ended = true;
    });
    EXPECT_TRUE(ended);
  }
}

TEST(ThreadPool, ThrowsTheExceptionOfAPieceAndGoesOn) {
  for (const int32_t threads : {1, 3}) {
    ThreadPool pool(threads);
    for (int64_t bad = 0; bad < 10; ++bad) {
      const auto body = [&](int64_t piece, int32_t) {
        if (piece == bad) throw std::runtime_error("piece " + std::to_string(piece));
      };
      try {
        pool.parallel_for(10, body);
        FAIL() << "expected an exception";
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), "piece " + std::to_string(bad));
      }
      EXPECT_EQ(counts_of(pool, 10), ones(10)) << "after an exception";
    }
  }
}

TEST(ThreadPool, ThrowsWhatAWorkerThrew) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  const auto body = [&](int64_t, int32_t thread) {
    ++arrived;
    while (arrived < 2)
      std::this_thread::yield();
    if (thread == 1) fail("of the worker");
  };
  EXPECT_THROW(pool.parallel_for(2, body), Error);
}

TEST(ThreadPool, ThrowsOneOfManyExceptions) {
  ThreadPool pool(4);
  std::atomic<int> calls{0};
  const auto body = [&](int64_t, int32_t) {
    ++calls;
    throw std::runtime_error("each");
  };
  EXPECT_THROW(pool.parallel_for(1000, body), std::runtime_error);
  EXPECT_LE(calls, 4) << "a thread that has seen an exception begins no piece";
}

TEST(ThreadPool, RefusesLoopsWithinLoopsAndBadSizes) {
  ThreadPool pool(2);
  for (const int64_t pieces : {1, 4}) {
    EXPECT_THROW(pool.parallel_for(pieces, [&](int64_t, int32_t) { counts_of(pool, 2); }), Error);
  }
  EXPECT_THROW(pool.parallel_for(-1, [](int64_t, int32_t) {}), Error);
  EXPECT_THROW(pool.parallel_for(int64_t{1} << 30, [](int64_t, int32_t) {}), Error);
  EXPECT_EQ(counts_of(pool, 9), ones(9));
  EXPECT_THROW(ThreadPool(0), Error);
}

TEST(ThreadPool, EndsAtAnyTime) {
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(3);
    if (round % 4 > 0) counts_of(pool, round % 4);          // none, one, and right after shared work
    if (round % 50 == 0) std::this_thread::sleep_for(1ms);  // long enough to fall asleep
  }
}

TEST(ThreadPool, ALoopDoesNotAllocate) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "allocations are not counted under the thread sanitizer";
  ThreadPool pool(2);
  std::vector<uint64_t> first(2);
  std::vector<uint64_t> last(2);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> arrived{0};
    pool.parallel_for(2, [&](int64_t, int32_t thread) {
      ++arrived;
      while (arrived < 2)
        std::this_thread::yield();
      last[static_cast<size_t>(thread)] = test::thread_allocations();
    });
    if (round == 0) first = last;
  }
  EXPECT_EQ(first, last);
}

/// Started threads would wait for a loop, and the constructor for them.
TEST(ThreadPoolTest, AStartWithoutMemoryEnds) {
  if (!test::counts_allocations()) GTEST_SKIP() << "a sanitizer has its own operator new";
  int num_failed = 0;
  for (int64_t after = 0; after < 8; ++after) {
    test::refuse_allocation(after);
    try {
      ThreadPool pool(4);
    } catch (const std::exception&) {
      ++num_failed;
    }
    test::refuse_allocation(-1);
  }
  EXPECT_GE(num_failed, 4) << "the shares, the list of workers and each of these";
}

}  // namespace
}  // namespace minfer
