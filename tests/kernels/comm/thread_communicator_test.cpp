#include <algorithm>
#include <functional>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/comm/host_communicator.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

/// Runs `body` as each of `count` ranks, each on its own thread.
void run_ranks(int32_t count, const std::function<void(HostCommunicator&)>& body,
               std::shared_ptr<RankFailure> failure = std::make_shared<RankFailure>(),
               std::chrono::milliseconds patience = std::chrono::minutes(1)) {
  auto communicators = make_thread_communicators(count, std::move(failure), patience);
  std::vector<std::jthread> threads;
  for (auto& communicator : communicators)
    threads.emplace_back([&body, &each = *communicator] { body(each); });
}

class ThreadRanksOf : public testing::TestWithParam<int32_t> {};

TEST_P(ThreadRanksOf, SumInTheirOrderWithTheSameBitsEverywhere) {
  const int32_t ranks = GetParam();
  for (const int64_t size : {1, 2, 3, 1000}) {
    std::vector<std::vector<float>> values, sums(static_cast<size_t>(ranks));
    for (int32_t rank = 0; rank < ranks; ++rank)
      values.push_back(test::normal_values(size, static_cast<uint32_t>(100 + rank)));
    std::vector<float> expected = values.front();
    for (size_t rank = 1; rank < values.size(); ++rank)
      std::ranges::transform(expected, values[rank], expected.begin(), std::plus<>());
    run_ranks(ranks, [&](HostCommunicator& own) {
      const auto index = static_cast<size_t>(own.rank().index);
      for (int turn = 0; turn < 50; ++turn) {
        sums[index] = values[index];
        own.all_reduce(sums[index]);
      }
    });
    for (const std::vector<float>& sum : sums)
      EXPECT_EQ(sum, expected) << size;
  }
}

TEST_P(ThreadRanksOf, GatherToTheFirstAndHearFromIt) {
  const int32_t ranks = GetParam();
  std::vector<float> gathered(static_cast<size_t>(3 * ranks), -1.0f);
  std::vector<std::vector<int32_t>> heard(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](HostCommunicator& own) {
    const auto index = static_cast<size_t>(own.rank().index);
    std::vector<float> part(3);
    std::iota(part.begin(), part.end(), 3.0f * static_cast<float>(index));
    own.gather(part, own.rank().is_first() ? std::span(gathered) : std::span<float>());
    heard[index] = {own.rank().is_first() ? 7 : 0, own.rank().is_first() ? -9 : 0};
    own.broadcast(heard[index]);
  });
  for (size_t i = 0; i < gathered.size(); ++i)
    EXPECT_EQ(gathered[i], static_cast<float>(i));
  for (const std::vector<int32_t>& each : heard)
    EXPECT_EQ(each, (std::vector<int32_t>{7, -9}));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadRanksOf, testing::Values(1, 2, 3, 5));

TEST(ThreadCommunicator, ARankThatDoesNotComeEndsTheOthers) {
  const auto failure = std::make_shared<RankFailure>();
  std::string message;
  run_ranks(
      2,
      [&](HostCommunicator& own) {
        if (!own.rank().is_first()) return;
        std::vector<float> values(4);
        try {
          own.all_reduce(values);
        } catch (const DeviceError& error) {
          message = error.what();
        }
      },
      failure, std::chrono::milliseconds(50));
  EXPECT_TRUE(failure->is_set());
  EXPECT_NE(message.find("rank 0 waited 50 ms for 1 of 2 ranks"), std::string::npos) << message;
}

TEST(ThreadCommunicator, AFailureElsewhereEndsWhoWaits) {
  const auto failure = std::make_shared<RankFailure>();
  std::string message;
  run_ranks(
      2,
      [&](HostCommunicator& own) {
        if (!own.rank().is_first()) return failure->set("rank 1 of 2: no memory");
        std::vector<int32_t> values(4);
        try {
          own.broadcast(values);
        } catch (const DeviceError& error) {
          message = error.what();
        }
      },
      failure);
  EXPECT_EQ(message, "rank 1 of 2: no memory");
  failure->set("another reason");
  try {
    failure->check();
    ADD_FAILURE() << "it is set";
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(), "rank 1 of 2: no memory") << "the first reason stays";
  }
}

}  // namespace
}  // namespace minfer
