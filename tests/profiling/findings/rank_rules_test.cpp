// The rules about several ranks, beside a control with even ranks.
#include <gtest/gtest.h>

#include "profiling/findings/findings_report.h"
#include "tests/support/found_in.h"

namespace minfer {
namespace {

using test::device_header;
using test::found_op;
using test::FoundIn;
using test::kUnchanged;

/// A run of 100 steps on three ranks: each computes 800 us, waits 20 and moves bytes for 60. Then `change` is applied to each rank.
template <class Change>
FoundIn run_on_ranks(Change change) {
  ProfileHeader header = device_header();
  header.options.emplace_back("tensor_parallel_size", "3");
  FoundIn run(header);
  run.steps(kUnchanged);
  for (int64_t step = 0; step < 100; ++step) {
    for (const int32_t rank : {0, 1, 2}) {
      const int64_t begin_ns = 1'000'000 + 1'000'000 * step;
      RankStep line{.step = step,
                    .rank = rank,
                    .begin_ns = begin_ns,
                    .end_ns = begin_ns + 880'000,
                    .computed_ns = 800'000,
                    .exchange_ns = 80'000,
                    .waited_ns = 20'000,
                    .host_ns = 40'000,
                    .launch_ns = 20'000,
                    .idle_ns = 5'000};
      change(line);
      run.evidence.rank_step(line);
    }
  }
  return run;
}

TEST(RankRules, EvenRanksAreHealthy) {
  const FoundIn run = run_on_ranks([](RankStep&) {});
  EXPECT_EQ(run.of("slow rank").gain, 0.0);
  EXPECT_EQ(run.of("exposed communication").gain, 0.0);
  EXPECT_TRUE(diagnose(run.evidence).is_healthy());
}

TEST(RankRules, ARankWhoseDeviceIsSlow) {
  const FoundIn run = run_on_ranks([](RankStep& line) {
    if (line.rank == 1) {
      line.computed_ns += 200'000;
      line.waited_ns = 0;
    } else {
      line.waited_ns = 200'000;
    }
    line.exchange_ns = line.waited_ns + 60'000;
  });
  EXPECT_EQ(run.first(), "slow rank");
  const Finding finding = run.of("slow rank");
  EXPECT_NE(finding.evidence.find("200 us a step longer for rank 1"), std::string::npos) << finding.evidence;
  EXPECT_NE(finding.evidence.find("it computes 1000 us a step, they 800 us"), std::string::npos)
      << finding.evidence;
  EXPECT_NE(finding.advice.find("its device"), std::string::npos);
  EXPECT_NEAR(finding.gain, 0.99 * 200.0 / 1'060.0, 1e-6) << "of the steps' 990 us of 1,000";
}

TEST(RankRules, ARankWhoseHostIsSlow) {
  const FoundIn run = run_on_ranks([](RankStep& line) {
    if (line.rank == 2) {
      line.launch_ns = 320'000;
      line.begin_ns += 300'000;
      line.waited_ns = 0;
    } else {
      line.waited_ns = 300'000;
    }
    line.exchange_ns = line.waited_ns + 60'000;
  });
  EXPECT_EQ(run.first(), "slow rank");
  const Finding finding = run.of("slow rank");
  EXPECT_NE(finding.evidence.find("for rank 2"), std::string::npos) << finding.evidence;
  EXPECT_NE(finding.evidence.find("begins 300 us later (they 0 us), and its host takes 320 us to launch"),
            std::string::npos)
      << finding.evidence;
  EXPECT_NE(finding.advice.find("its host's thread"), std::string::npos);
}

TEST(RankRules, ARankThatIsLateOutOfExchanges) {
  const FoundIn run = run_on_ranks([](RankStep& line) {
    line.waited_ns = line.rank == 0 ? 0 : 300'000;
    line.exchange_ns = 360'000;
  });
  const Finding finding = run.of("slow rank");
  EXPECT_NE(finding.evidence.find("for rank 0"), std::string::npos) << finding.evidence;
  EXPECT_NE(finding.evidence.find("spends 360 us a step in ops between ranks without waiting, they 60 us"),
            std::string::npos)
      << finding.evidence;
}

TEST(RankRules, ThreadsAreThoseOfAllRanks) {
  ProfileHeader header = device_header();
  header.backend = "cpu";
  header.threads = 2;
  header.cores = 4;
  EXPECT_GT(FoundIn(header).steps(kUnchanged).of("too few threads").gain, 0.0);
  header.options.emplace_back("tensor_parallel_size", "2");
  EXPECT_EQ(FoundIn(header).steps(kUnchanged).of("too few threads").gain, 0.0);
}

TEST(RankRules, ExposedCommunication) {
  const FoundIn run = run_on_ranks([](RankStep& line) {
    line.computed_ns = 600'000;
    line.exchange_ns = 280'000;
  });
  EXPECT_EQ(run.first(), "exposed communication");
  const Finding finding = run.of("exposed communication");
  EXPECT_TRUE(finding.estimated);
  EXPECT_NE(finding.evidence.find("takes 260 us a step, 30 %"), std::string::npos) << finding.evidence;
  EXPECT_NEAR(finding.stake, 0.99 * 260.0 / 880.0, 1e-6);
  EXPECT_NEAR(finding.gain, 0.5 * finding.stake, 1e-6);
  EXPECT_EQ(run.of("slow rank").gain, 0.0);
}

// The time of an op between ranks contains its waits, so its distance from a roofline says nothing.
TEST(RankRules, OpsBetweenRanksAreNoSlowKernels) {
  ProfileHeader header = device_header();
  header.ops.push_back(found_op("attn_all_reduce", OpKind::all_reduce));
  FoundIn run(header);
  run.steps([](StepSummary& step) {
    step.ops.push_back({.op = "attn_all_reduce",
                        .calls = 32,
                        .us = 900.0,
                        .floor_us = 10.0,
                        .bound = Bound::memory,
                        .launches = {0}});
    step.wall_us = 1'900.0;
    step.gpu_us = 1'890.0;
    step.start_ns = 1'000'000 + step.step * 1'900'000;
  });
  const Diagnosis diagnosis = diagnose(run.evidence);
  EXPECT_TRUE(diagnosis.is_healthy()) << findings_text(diagnosis, false);
  EXPECT_NE(diagnosis.limit.text.find("ranks exchange data"), std::string::npos) << diagnosis.limit.text;
}

}  // namespace
}  // namespace minfer
