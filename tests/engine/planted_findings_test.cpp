// Cases with one fault each: the first finding names it, and its promised gain is close to the gain from mending it. The scheduler
// itself chooses what steps compute; a cost model gives their times, so that no case depends on the machine.
#include <functional>

#include <gtest/gtest.h>

#include "profiling/findings/findings_report.h"
#include "profiling/findings/rules.h"
#include "tests/support/engine/costed_run.h"

namespace minfer {
namespace {

using test::CostedRun;
using test::StepCosts;

EngineOptions planted_options() {
  EngineOptions options;
  options.max_model_len = 2048;
  options.max_num_seqs = 64;
  options.num_blocks = 2048;
  options.threads = 1;
  return options;
}

void submit_eight(CostedRun& run) {
  for (int i = 0; i < 8; ++i)
    run.submit(32, 64);
  run.run();
}

/// A case with a fault, and the same work after the fault is mended.
struct PlantedCase {
  std::string first;
  EngineOptions options = planted_options();
  StepCosts costs = {};
  EngineOptions mended_options = planted_options();
  StepCosts mended_costs = {};
  int32_t cores = 1;
  std::function<void(CostedRun&)> work = submit_eight;
  std::function<void(CostedRun&)> mended_work = nullptr;  ///< null: the same
  double times_the_work = 1.0;                            ///< work of the mended case, as a multiple
};

Finding first_finding(const CostedRun& run) {
  const Diagnosis diagnosis = diagnose(run.evidence());
  if (diagnosis.findings.empty()) return {.rule = "none"};
  return diagnosis.findings.front();
}

void expect_found(const PlantedCase& planted) {
  CostedRun run(planted.options, planted.costs, planted.cores);
  planted.work(run);
  const Finding finding = first_finding(run);
  ASSERT_EQ(finding.rule, planted.first) << findings_text(diagnose(run.evidence()), false);
  EXPECT_GT(finding.weight(), kHealthyGain);
  CostedRun mended(planted.mended_options, planted.mended_costs, planted.cores);
  (planted.mended_work ? planted.mended_work : planted.work)(mended);
  const double real = finding.of == GainOf::latency
                          ? 1.0 - mended.longest_gap_us() / run.longest_gap_us()
                          : 1.0 - mended.wall_us() / planted.times_the_work / run.wall_us();
  std::printf("%s: estimated %.0f %%, real %.0f %%\n", planted.first.c_str(), 100.0 * finding.gain,
              100.0 * real);
  EXPECT_GT(finding.gain, 0.5 * real);
  EXPECT_LT(finding.gain, 2.0 * real);
  const Finding left = first_finding(mended);
  EXPECT_TRUE(left.rule != planted.first || left.weight() <= kHealthyGain)
      << findings_text(diagnose(mended.evidence()), false);
}

TEST(PlantedFindings, HostSlowedDown) {
  expect_found({.first = "host-bound", .costs = {.host_us = 2'000.0}});
}

TEST(PlantedFindings, TinyChunks) {
  PlantedCase planted{.first = "tiny chunks"};
  planted.options.max_num_batched_tokens = 16;
  planted.work = [](CostedRun& run) {
    for (int i = 0; i < 4; ++i)
      run.submit(512, 2);
    run.run();
  };
  expect_found(planted);
}

TEST(PlantedFindings, OneSequenceAtATime) {
  expect_found({.first = "too little load",
                .work =
                    [](CostedRun& run) {
                      run.submit(32, 64);
                      run.run();
                    },
                .mended_work = submit_eight,
                .times_the_work = 8.0});
}

TEST(PlantedFindings, CacheTooSmallForTheSequences) {
  PlantedCase planted{.first = "preemption thrash"};
  planted.options.num_blocks = 40;
  planted.options.max_model_len = planted.mended_options.max_model_len = 256;
  planted.work = [](CostedRun& run) {
    for (int i = 0; i < 16; ++i)
      run.submit(64, 128);
    run.run();
  };
  expect_found(planted);
}

TEST(PlantedFindings, PrefixCacheOff) {
  PlantedCase planted{.first = "prefix not cached"};
  planted.options.enable_prefix_caching = false;
  planted.work = [](CostedRun& run) {
    const std::vector<TokenId> prefix(256, 7);
    for (int wave = 0; wave < 8; ++wave) {
      for (int i = 0; i < 8; ++i)
        run.submit(16, 4, prefix);
      run.run();
    }
  };
  expect_found(planted);
}

TEST(PlantedFindings, LongPromptsBesideDecoding) {
  const StepCosts of_a_slow_machine{.shared_us = 5'000.0, .token_us = 100.0};  // so that gaps matter
  PlantedCase planted{
      .first = "prefill starves decode", .costs = of_a_slow_machine, .mended_costs = of_a_slow_machine};
  planted.mended_options.max_num_batched_tokens = 128;
  planted.work = [](CostedRun& run) {
    for (int i = 0; i < 8; ++i)
      run.submit(32, 300);
    for (int i = 0; i < 24; ++i) {
      run.run(8);
      run.submit(1'500, 2);
    }
    run.run();
  };
  expect_found(planted);
}

TEST(PlantedFindings, TooFewThreads) {
  expect_found(
      {.first = "too few threads", .costs = {.threads = 1.0}, .mended_costs = {.threads = 8.0}, .cores = 8});
}

TEST(PlantedFindings, ClientsThatReadSlowly) {
  CostedRun run(planted_options(), {.client_wait = 0.6});
  submit_eight(run);
  EXPECT_EQ(first_finding(run).rule, "clients too slow");
  EngineOptions options = planted_options();
  options.stream_interval = 8;
  CostedRun mended(options, {.client_wait = 0.6});
  submit_eight(mended);
  EXPECT_NE(first_finding(mended).rule, "clients too slow") << "there is nothing to raise any more";
}

class HealthyRuns : public testing::Test {
 protected:
  static void expect_healthy(const CostedRun& run) {
    const Diagnosis diagnosis = diagnose(run.evidence());
    EXPECT_TRUE(diagnosis.is_healthy()) << findings_text(diagnosis, false);
    EXPECT_NE(findings_text(diagnosis, false).find("Healthy"), std::string::npos);
  }
};

TEST_F(HealthyRuns, EightSequences) {
  CostedRun run(planted_options(), {});
  submit_eight(run);
  expect_healthy(run);
}

TEST_F(HealthyRuns, ManySequencesThatComeOneByOne) {
  CostedRun run(planted_options(), {});
  for (int i = 0; i < 40; ++i) {
    run.submit(48, 100);
    run.run(4);
  }
  run.run();
  expect_healthy(run);
}

TEST_F(HealthyRuns, SharedPrefixesFromTheCache) {
  CostedRun run(planted_options(), {});
  const std::vector<TokenId> prefix(256, 7);
  for (int wave = 0; wave < 6; ++wave) {
    for (int i = 0; i < 8; ++i)
      run.submit(16, 32, prefix);
    run.run();
  }
  expect_healthy(run);
}

TEST_F(HealthyRuns, PromptsInGoodPieces) {
  EngineOptions options = planted_options();
  options.max_num_batched_tokens = 512;
  CostedRun run(options, {});
  for (int i = 0; i < 6; ++i)
    run.submit(1'024, 200);
  run.run();
  expect_healthy(run);
}

}  // namespace
}  // namespace minfer
