#include "profiling/record/recent_records.h"

#include <atomic>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace minfer {
namespace {

EndedRequest request(int number) {
  EndedRequest ended;
  ended.id = std::to_string(number);
  return ended;
}

TEST(RecentRecords, HoldsTheLastOnesInTheirOrder) {
  RecentRecords recent;
  EXPECT_TRUE(recent.last_requests(RecentRecords::kMost).empty());
  const int count = 3 * static_cast<int>(RecentRecords::kMost);
  for (int i = 0; i < count; ++i)
    recent.consume_request(request(i));
  const std::vector<EndedRequest> all = recent.last_requests(RecentRecords::kMost);
  ASSERT_EQ(all.size(), RecentRecords::kMost);
  EXPECT_EQ(all.front().id, std::to_string(count - static_cast<int>(RecentRecords::kMost)));
  EXPECT_EQ(all.back().id, std::to_string(count - 1));
}

TEST(RecentRecords, GivesTheLastFewOrThoseSinceATime) {
  RecentRecords recent;
  EXPECT_TRUE(recent.last_requests(3).empty());
  for (int i = 0; i < 10; ++i) {
    EndedRequest ended = request(i);
    ended.end_ns = 100 * i;
    recent.consume_request(ended);
  }
  const auto ids = [](const std::vector<EndedRequest>& requests) {
    std::string text;
    for (const EndedRequest& each : requests)
      text += each.id;
    return text;
  };
  EXPECT_EQ(ids(recent.last_requests(3)), "789");
  EXPECT_EQ(ids(recent.last_requests(0)), "");
  EXPECT_EQ(ids(recent.last_requests(11)), "0123456789");
  EXPECT_EQ(ids(recent.requests_since(700)), "789");
  EXPECT_EQ(ids(recent.requests_since(701)), "89");
  EXPECT_EQ(ids(recent.requests_since(-1)), "0123456789");
  EXPECT_EQ(ids(recent.requests_since(1'000)), "");
}

TEST(RecentRecords, HoldsTheLastStepsOfRanksInTheirOrder) {
  RecentRecords recent;
  EXPECT_FALSE(recent.wants_requests());
  const auto most = static_cast<int64_t>(RecentRecords::kMost);
  for (int64_t step = 0; step < 2 * most; ++step)
    recent.consume_rank_step({.step = step, .rank = 1});
  const std::vector<RankStep> all = recent.rank_steps();
  ASSERT_EQ(std::ssize(all), most);
  EXPECT_EQ(all.front().step, most);
  EXPECT_EQ(all.back().step, 2 * most - 1);
}

TEST(RecentRecords, NeedsNoIdsInTheRecords) {
  RecentRecords recent;
  EXPECT_FALSE(recent.wants_requests());
  EXPECT_TRUE(recent.wants_ended_requests());
}

// A reader always sees the right order, and requests that came meanwhile are there once a step has ended.
TEST(RecentRecords, AReaderHoldsNobodyUp) {
  RecentRecords recent;
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) {
      const std::vector<EndedRequest> all = recent.last_requests(64);
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
  EXPECT_EQ(recent.last_requests(RecentRecords::kMost).back().id, std::to_string(kCount - 1));
}

}  // namespace
}  // namespace minfer
