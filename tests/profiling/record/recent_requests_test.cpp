#include "profiling/record/recent_requests.h"

#include <atomic>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "profiling/record/recent_rank_steps.h"

namespace minfer {
namespace {

EndedRequest request(int number) {
  EndedRequest ended;
  ended.id = std::to_string(number);
  return ended;
}

TEST(RecentRequests, HoldsTheLastOnesInTheirOrder) {
  RecentRequests recent;
  EXPECT_TRUE(recent.all().empty());
  const int count = 3 * static_cast<int>(RecentRequests::kMost);
  for (int i = 0; i < count; ++i)
    recent.consume_request(request(i));
  const std::vector<EndedRequest> all = recent.all();
  ASSERT_EQ(all.size(), RecentRequests::kMost);
  EXPECT_EQ(all.front().id, std::to_string(count - static_cast<int>(RecentRequests::kMost)));
  EXPECT_EQ(all.back().id, std::to_string(count - 1));
}

TEST(RecentRankSteps, HoldsTheLastOnesInTheirOrder) {
  RecentRankSteps recent;
  EXPECT_FALSE(recent.wants_requests());
  EXPECT_FALSE(recent.wants_ended_requests());
  const auto most = static_cast<int64_t>(RecentRankSteps::kMost);
  for (int64_t step = 0; step < 2 * most; ++step)
    recent.consume_rank_step({.step = step, .rank = 1});
  const std::vector<RankStep> all = recent.all();
  ASSERT_EQ(std::ssize(all), most);
  EXPECT_EQ(all.front().step, most);
  EXPECT_EQ(all.back().step, 2 * most - 1);
}

TEST(RecentRequests, NeedsNoIdsInTheRecords) {
  RecentRequests recent;
  EXPECT_FALSE(recent.wants_requests());
  EXPECT_TRUE(recent.wants_ended_requests());
}

// Whoever reads never sees the order broken, and what came meanwhile is there once a step has ended.
TEST(RecentRequests, AReaderHoldsNobodyUp) {
  RecentRequests recent;
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) {
      const std::vector<EndedRequest> all = recent.all();
      for (size_t i = 1; i < all.size(); ++i)
        EXPECT_EQ(std::stoi(all[i].id), std::stoi(all[i - 1].id) + 1);
    }
  });
  constexpr int kCount = 2000;
  for (int i = 0; i < kCount; ++i) {
    recent.consume_request(request(i));
    std::this_thread::yield();
  }
  stop = true;
  reader.join();
  recent.consume({});
  EXPECT_EQ(recent.all().back().id, std::to_string(kCount - 1));
}

}  // namespace
}  // namespace minfer
