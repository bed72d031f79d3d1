// Which launch each kernel record belongs to.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "profiling/trace/step_trace.h"

namespace minfer {
namespace {

using Names = std::vector<int32_t>;

/// The most pairs that can be matched in order, by the plain quadratic recurrence.
int32_t most_pairs(const Names& records, const Names& launches) {
  std::vector<Names> most(records.size() + 1, Names(launches.size() + 1, 0));
  for (size_t i = 0; i < records.size(); ++i) {
    for (size_t j = 0; j < launches.size(); ++j) {
      const bool fits = launches[j] == kAnyName || launches[j] == records[i];
      most[i + 1][j + 1] = std::max({most[i][j + 1], most[i + 1][j], most[i][j] + (fits ? 1 : 0)});
    }
  }
  return most.back().back();
}

void expect_consistent(const LaunchMatch& match, const Names& records, const Names& launches) {
  ASSERT_EQ(match.launch_of.size(), records.size());
  int32_t last = -1, pairs = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    const int32_t launch = match.launch_of[i];
    if (launch < 0) continue;
    ASSERT_GT(launch, last) << "record " << i;
    ASSERT_LT(launch, std::ssize(launches));
    const int32_t name = launches[static_cast<size_t>(launch)];
    EXPECT_TRUE(name == kAnyName || name == records[i]);
    last = launch;
    ++pairs;
  }
  EXPECT_EQ(match.unmatched, std::ssize(records) - pairs);
  EXPECT_EQ(match.missing, std::ssize(launches) - pairs);
}

/// The kernels of a step of `layers` layers: six names that recur in each layer, between others.
Names layered(int32_t layers) {
  Names names{100, 101};
  for (int32_t layer = 0; layer < layers; ++layer)
    names.insert(names.end(), {1, 2, 3, 4, 1, 5, 6});
  names.insert(names.end(), {7, 8, 9});
  return names;
}

TEST(LaunchMatchTest, EqualListsMatchOneToOne) {
  const Names names = layered(32);
  const LaunchMatch match = match_launches(names, names);
  expect_consistent(match, names, names);
  EXPECT_EQ(match.unmatched + match.missing, 0);
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(match.launch_of[i], static_cast<int32_t>(i));
}

TEST(LaunchMatchTest, EmptyLists) {
  EXPECT_EQ(match_launches({}, {}).missing, 0);
  EXPECT_EQ(match_launches({}, layered(2)).missing, 19);
  const LaunchMatch match = match_launches(layered(2), {});
  EXPECT_EQ(match.unmatched, 19);
  EXPECT_EQ(match.launch_of, Names(19, -1));
}

TEST(LaunchMatchTest, AMissingRecordMovesNothingElse) {
  const Names launches = layered(32);
  for (size_t gone = 0; gone < launches.size(); ++gone) {
    Names records = launches;
    records.erase(records.begin() + static_cast<std::ptrdiff_t>(gone));
    const LaunchMatch match = match_launches(records, launches);
    ASSERT_EQ(match.unmatched, 0) << gone;
    ASSERT_EQ(match.missing, 1) << gone;
    for (size_t i = 0; i < records.size(); ++i)
      ASSERT_EQ(match.launch_of[i], static_cast<int32_t>(i < gone ? i : i + 1)) << gone;
  }
}

TEST(LaunchMatchTest, AnExtraRecordIsLeftOver) {
  const Names launches = layered(32);
  for (size_t at = 0; at <= launches.size(); at += 5) {
    Names records = launches;
    records.insert(records.begin() + static_cast<std::ptrdiff_t>(at), 77);
    const LaunchMatch match = match_launches(records, launches);
    EXPECT_EQ(match.unmatched, 1);
    EXPECT_EQ(match.missing, 0);
    EXPECT_EQ(match.launch_of[at], -1) << at;
  }
}

TEST(LaunchMatchTest, UnknownLaunchesTakeAnyRecord) {
  Names launches = layered(8);
  const Names records = launches;
  for (size_t i = 3; i < launches.size(); i += 7)
    launches[i] = kAnyName;
  const LaunchMatch match = match_launches(records, launches);
  EXPECT_EQ(match.unmatched + match.missing, 0);
}

TEST(LaunchMatchTest, RandomListsAreMatchedAsFarAsCanBe) {
  std::mt19937 random(11);
  const auto pick = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    const int32_t names = pick(1, 5);
    Names launches(static_cast<size_t>(pick(0, 24)));
    for (int32_t& name : launches)
      name = pick(-1, names);
    Names records;
    if (pick(0, 2) == 0) {  // with nothing in common but the names
      records.resize(static_cast<size_t>(pick(0, 24)));
      for (int32_t& name : records)
        name = pick(0, names);
    } else {
      for (const int32_t name : launches) {
        if (pick(0, 9) > 0) records.push_back(name == kAnyName ? pick(0, names) : name);
        if (pick(0, 9) == 0) records.push_back(pick(0, names));
      }
    }
    const LaunchMatch match = match_launches(records, launches);
    expect_consistent(match, records, launches);
    ASSERT_EQ(std::ssize(records) - match.unmatched, most_pairs(records, launches)) << "round " << round;
  }
}

TEST(LaunchMatchTest, ListsOfNothingInCommonEnd) {
  const Names records(4000, 1);
  Names launches(4000, 2);
  LaunchMatch match = match_launches(records, launches);
  EXPECT_EQ(match.unmatched, 4000);
  EXPECT_EQ(match.missing, 4000);
  std::fill_n(launches.begin(), 100, 1);  // the part before the difference fits
  match = match_launches(records, launches);
  expect_consistent(match, records, launches);
  EXPECT_GE(std::ssize(records) - match.unmatched, 100);
}

}  // namespace
}  // namespace minfer
