// Ranks that are processes, without MPI: threads stand for the processes, and memory stands for the message transport.
#include <atomic>
#include <cmath>
#include <numeric>
#include <string_view>

#include <gmock/gmock.h>

#include "kernels/base/error.h"
#include "kernels/comm/launcher.h"
#include "tests/support/memory_transport.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::run_as_processes;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

constexpr auto kPatience = 60'000ms;

/// Addends whose sum depends on their order.
float addend(int32_t rank, size_t i) {
  return std::sin(static_cast<float>(i) + 1.0f) * std::pow(10.0f, static_cast<float>(rank * 3 % 5));
}

class ProcessSumTest : public testing::TestWithParam<std::tuple<int32_t, size_t>> {};

TEST_P(ProcessSumTest, IsMadeInTheRanksOrder) {
  const auto count = std::get<0>(GetParam());
  const auto size = std::get<1>(GetParam());
  std::vector<float> expected(size);
  for (size_t i = 0; i < size; ++i) {
    expected[i] = addend(0, i);
    for (int32_t rank = 1; rank < count; ++rank)
      expected[i] += addend(rank, i);
  }
  std::vector<std::vector<float>> sums(static_cast<size_t>(count));
  run_as_processes(count, [&](const std::shared_ptr<ProcessGroup>& processes) {
    const int32_t rank = processes->rank().index;
    const std::unique_ptr<HostCommunicator> communicator = make_process_communicator(processes, kPatience);
    std::vector<float>& values = sums[static_cast<size_t>(rank)];
    for (int turn = 0; turn < 3; ++turn) {
      values.resize(size);
      for (size_t i = 0; i < size; ++i)
        values[i] = addend(rank, i);
      communicator->all_reduce(values);
    }
    processes->end_in_order(kPatience);
  });
  for (const std::vector<float>& sum : sums)
    EXPECT_EQ(sum, expected);
}

// Sizes below and above the one from which ranks add up a part each; sizes that do not divide.
INSTANTIATE_TEST_SUITE_P(Sizes, ProcessSumTest,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Values(1u, 1000u, 8193u, 20001u)));

TEST(ProcessCommunicatorTest, GathersAndBroadcasts) {
  run_as_processes(3, [](const std::shared_ptr<ProcessGroup>& processes) {
    const Rank rank = processes->rank();
    const std::unique_ptr<HostCommunicator> communicator = make_process_communicator(processes, kPatience);
    const std::vector<float> part{static_cast<float>(rank.index), 10.0f};
    std::vector<float> all(rank.is_first() ? 6 : 0);
    communicator->gather(part, all);
    if (rank.is_first()) {
      EXPECT_THAT(all, testing::ElementsAre(0, 10, 1, 10, 2, 10));
    }
    std::vector<int32_t> tokens(4, rank.index);
    communicator->broadcast(tokens);
    EXPECT_THAT(tokens, testing::Each(0));
    processes->end_in_order(kPatience);
  });
}

TEST(ProcessGroupTest, WhoDoesNotComeIsNamedInEveryProcess) {
  run_as_processes(3, [&](const std::shared_ptr<ProcessGroup>& processes) {
    std::vector<float> values(4);
    const int32_t rank = processes->rank().index;
    std::string error;
    if (rank == 2) {  // hangs until it hears of the failure
      while (error.empty())
        error = test::refusal_of<DeviceError>([&] { processes->check(); });
    } else {
      error = test::refusal_of<DeviceError>(
          [&] { make_process_communicator(processes, 200ms)->all_reduce(values); });
    }
    EXPECT_THAT(error, HasSubstr("waited 200 ms for rank 2 (host b, process 102): its part of a sum"));
  });
}

TEST(ProcessGroupTest, WhoEndsIsNamedWithoutWaitingForPatience) {
  run_as_processes(2, [](std::shared_ptr<ProcessGroup> processes) {
    std::vector<float> values(4);
    if (!processes->rank().is_first()) return;
    EXPECT_THAT(test::refusal_of<DeviceError>([&] {
                  make_process_communicator(processes, ProcessGroup::kNoLimit)->all_reduce(values);
                }),
                StartsWith("rank 1 (host a, process 101)"));
  });
}

TEST(ProcessGroupTest, WhatOneFailsWithIsToldToAll) {
  std::atomic<int> num_told = 0;
  run_as_processes(3, [&](const std::shared_ptr<ProcessGroup>& processes) {
    if (processes->rank().index == 1) {
      processes->fail("no memory");
      while (num_told < 2)
        std::this_thread::sleep_for(1ms);
      return;
    }
    std::string error;
    while (error.empty())
      error = test::refusal_of<DeviceError>([&] { processes->check(); });
    EXPECT_EQ(error, "rank 1 (host a, process 101): no memory");
    ++num_told;
  });
}

TEST(ProcessGroupTest, AnotherThreadHearsOfAFailure) {
  run_as_processes(2, [](const std::shared_ptr<ProcessGroup>& processes) {
    if (!processes->rank().is_first()) return processes->fail("out of order");
    std::atomic<bool> was_called = false;
    processes->when_failed([&](const std::string& why) {
      EXPECT_THAT(why, HasSubstr("out of order"));
      was_called = true;
    });
    while (!was_called)
      std::this_thread::sleep_for(1ms);
    processes->when_failed(nullptr);
  });
}

TEST(ProcessGroupTest, CountsWhoSharesItsCores) {
  run_as_processes(3, [](const std::shared_ptr<ProcessGroup>& processes) {
    EXPECT_EQ(processes->num_on_same_cores(), processes->rank().index < 2 ? 2 : 1);
    EXPECT_EQ(processes->num_unwatched(), 0);
    processes->end_in_order(kPatience);
  });
}

TEST(LaunchTest, IsReadFromTheEnvironment) {
  const auto with = [](const char* (*variable)(const char*)) { return read_launch(variable); };
  EXPECT_EQ(with([](const char*) -> const char* { return nullptr; }).count, 1);
  const Launch mpirun = with([](const char* name) -> const char* {
    const std::string_view wanted = name;
    return wanted == "OMPI_COMM_WORLD_SIZE" ? "4" : wanted == "OMPI_COMM_WORLD_RANK" ? "3" : nullptr;
  });
  EXPECT_EQ(std::tuple(mpirun.rank, mpirun.count, mpirun.launcher), std::tuple(3, 4, "mpirun"));
  const Launch srun = with([](const char* name) -> const char* {
    const std::string_view wanted = name;
    return wanted == "SLURM_STEP_NUM_TASKS" ? "2" : wanted == "PMIX_RANK" ? "1" : nullptr;
  });
  EXPECT_EQ(std::tuple(srun.rank, srun.count, srun.launcher), std::tuple(1, 2, "srun"));
  // A job of several tasks that are no ranks: srun without PMIx.
  EXPECT_EQ(with([](const char* name) -> const char* {
              return std::string_view(name) == "SLURM_STEP_NUM_TASKS" ? "2" : nullptr;
            }).count,
            1);
  // A single process.
  EXPECT_EQ(with([](const char* name) -> const char* {
              return std::string_view(name) == "OMPI_COMM_WORLD_SIZE" ? "1" : nullptr;
            }).count,
            1);
}

}  // namespace
}  // namespace minfer
