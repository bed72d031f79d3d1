// What ranks tell each other at the start, as threads and as processes, and what they conclude about their GPUs.
#include "kernels/comm/rank_exchange.h"

#include <thread>

#include <gmock/gmock.h>

#include "kernels/base/error.h"
#include "kernels/comm/rank_gpus.h"
#include "tests/support/memory_transport.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::run_as_processes;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kExchangePatience = 60'000ms;

void expect_exchange(RankExchange& exchange, Rank rank) {
  for (const size_t size : {size_t{0}, size_t{3}, size_t{100'000}}) {
    const std::vector<std::string> all = exchange.exchange(
        rank, std::string(size + static_cast<size_t>(rank.index), static_cast<char>('a' + rank.index)));
    ASSERT_EQ(all.size(), 3u);
    for (size_t from = 0; from < all.size(); ++from)
      EXPECT_EQ(all[from], std::string(size + from, static_cast<char>('a' + from)));
  }
}

TEST(RankExchangeTest, BringsWhatEachRankHasToThreads) {
  const std::unique_ptr<RankExchange> exchange =
      make_thread_exchange(3, std::make_shared<RankFailure>(), kExchangePatience);
  std::vector<std::jthread> threads;
  for (int32_t index = 0; index < 3; ++index)
    threads.emplace_back([&exchange, index] { expect_exchange(*exchange, {index, 3}); });
}

TEST(RankExchangeTest, BringsWhatEachRankHasToProcesses) {
  run_as_processes(3, [](const std::shared_ptr<ProcessGroup>& processes) {
    expect_exchange(*make_process_exchange(processes, kExchangePatience), processes->rank());
    processes->end_in_order(kExchangePatience);
  });
}

TEST(RankExchangeTest, AProcessThatFailsEndsTheWaitOfOthers) {
  run_as_processes(2, [](const std::shared_ptr<ProcessGroup>& processes) {
    const std::unique_ptr<RankExchange> exchange = make_process_exchange(processes, kExchangePatience);
    if (!processes->rank().is_first()) return exchange->fail("no memory");
    try {
      exchange->exchange(processes->rank(), "");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const DeviceError& error) {
      EXPECT_STREQ(error.what(), "rank 1 (host a, process 101): no memory");
    }
  });
}

TEST(RankExchangeTest, AProcessThatDoesNotComeIsWaitedForWithPatience) {
  run_as_processes(2, [](const std::shared_ptr<ProcessGroup>& processes) {
    const std::unique_ptr<RankExchange> exchange = make_process_exchange(processes, 200ms);
    if (!processes->rank().is_first()) {
      while (!exchange->failure().is_set())
        std::this_thread::sleep_for(1ms);
      return;
    }
    try {
      exchange->exchange(processes->rank(), "");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), HasSubstr("waited 200 ms for rank 1 (host a, process 101)"));
    }
  });
}

RankGpus gpus_on(const std::string& host, const std::vector<std::string>& gpus) {
  RankGpus rank;
  rank.host = host;
  rank.nccl = "2.21.5";
  for (const std::string& gpu : gpus)
    rank.gpus.push_back({.id = gpu, .name = "NVIDIA H200"});
  return rank;
}

TEST(RankGpusTest, AreTheSameAsTextAndBack) {
  RankGpus gpus = gpus_on("a", {"x", "y"});
  gpus.gpus.back().is_supported = false;
  EXPECT_EQ(read_gpus(write_gpus(gpus)), gpus);
  gpus = {};
  gpus.error = "no driver";
  gpus.nccl_error = "libnccl.so.2: cannot open\tit";
  EXPECT_EQ(read_gpus(write_gpus(gpus)).error, "no driver");
  for (const char* text : {"", "a", "a\nb\nc\n", "a\nb\nc\nd\ne"})
    EXPECT_NE(test::refusal_of([&] { read_gpus(text); }), "") << text;
}

TEST(RankGpusTest, EachProcessOfAHostHasOne) {
  // Ranks on two hosts in turn; the same number on each.
  const std::vector<RankGpus> ranks{gpus_on("a", {"x", "y"}), gpus_on("b", {"x", "y"}),
                                    gpus_on("a", {"x", "y"}), gpus_on("b", {"x", "y"})};
  EXPECT_THAT(device_of_ranks(ranks), ElementsAre(0, 0, 1, 1));
  // The launcher shows each rank its own GPU.
  EXPECT_THAT(device_of_ranks(std::vector{gpus_on("a", {"x"}), gpus_on("a", {"y"})}), ElementsAre(0, 0));
  // The same GPUs in another order.
  EXPECT_THAT(device_of_ranks(std::vector{gpus_on("a", {"x", "y"}), gpus_on("a", {"y", "x"})}),
              ElementsAre(0, 0));
}

TEST(RankGpusTest, TooFewOnAHostAreAnErrorThatNamesIt) {
  const std::vector<RankGpus> ranks{gpus_on("a", {"x", "y"}), gpus_on("b", {"z"}), gpus_on("b", {"z"})};
  EXPECT_THAT(test::refusal_of([&] { device_of_ranks(ranks); }),
              HasSubstr("host b has 1 GPUs, 2 are needed"));
  RankGpus none = gpus_on("b", {});
  none.error = "cannot list CUDA devices: out of memory";
  EXPECT_THAT(
      test::refusal_of([&] {
        device_of_ranks(std::vector{gpus_on("a", {"x"}), none});
      }),
      testing::AllOf(HasSubstr("host b has 0 GPUs, 1 are needed"), HasSubstr("(cannot list CUDA devices")));
}

TEST(RankGpusTest, OneThatIsNotSupportedIsAnErrorThatNamesItsHost) {
  RankGpus old = gpus_on("b", {"x"});
  old.gpus.front() = {.id = "x", .name = "Tesla T4", .is_supported = false};
  EXPECT_THAT(test::refusal_of([&] {
                device_of_ranks(std::vector{gpus_on("a", {"x"}), old});
              }),
              HasSubstr("host b: Tesla T4 is not supported"));
}

TEST(RankGpusTest, NcclIsNeededOnAllHostsInOneVersion) {
  std::vector<RankGpus> ranks{gpus_on("a", {"x"}), gpus_on("b", {"x"})};
  EXPECT_EQ(why_no_nccl(ranks), "");
  ranks.back().nccl = "2.18.1";
  EXPECT_EQ(why_no_nccl(ranks), "host b has version 2.18.1, host a has 2.21.5");
  ranks.back().nccl.clear();
  ranks.back().nccl_error = "libnccl.so.2: cannot open shared object file";
  EXPECT_EQ(why_no_nccl(ranks), "host b: libnccl.so.2: cannot open shared object file");
}

TEST(RankGpusTest, MemoryIsSharedOnOneHostAlone) {
  const std::vector<RankGpus> ranks{gpus_on("a", {"x", "y"}), gpus_on("a", {"x", "y"})};
  EXPECT_EQ(why_no_shared_memory(ranks, 8), "");
  EXPECT_EQ(why_no_shared_memory(ranks, 1), "there are more than 1 ranks");
  EXPECT_THAT(why_no_shared_memory(std::vector{gpus_on("a", {"x"}), gpus_on("b", {"x"})}, 8),
              HasSubstr("several hosts (a and b)"));
}

}  // namespace
}  // namespace minfer
