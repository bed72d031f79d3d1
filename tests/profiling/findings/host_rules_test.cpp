// Rules about the time that the machine takes, on synthetic samples.
#include <gtest/gtest.h>

#include "tests/support/found_in.h"

namespace minfer {
namespace {

using test::device_header;
using test::FoundIn;

/// A tenth of a second in which two threads compute, on a CPU with two cores.
HostSample host_sample(int64_t number) {
  constexpr int64_t kNs = 100'000'000;
  HostSample sample;
  sample.begin_ns = 1'000'000 + number * kNs;
  sample.end_ns = sample.begin_ns + kNs;
  sample.threads = 2;
  sample.ran_us = 150'000.0;
  return sample;
}

template <class Change>
FoundIn run_on_a_busy_host(Change change, int32_t threads = 2) {
  ProfileHeader header = device_header();
  header.backend = "cpu";
  header.threads = threads;
  header.cores = 2;
  FoundIn run(header);
  run.steps([](StepSummary& step) { step.on_device = false; });
  HostSample sample = host_sample(0);  // as long as all steps together
  change(sample);
  run.evidence.host(sample);
  HostSample behind = host_sample(5);
  change(behind);
  run.evidence.host(behind);  // no step ran then, so it does not count
  return run;
}

TEST(HostRules, CoresTakenByOthers) {
  const auto wait = [](HostSample& sample) {
    sample.engine_waited_us = 50'000.0;
    sample.any_waited_us = 70'000.0;
  };
  const Finding finding = run_on_a_busy_host(wait).of("cores taken");
  EXPECT_NEAR(finding.gain_from, 0.5, 1e-6);
  EXPECT_NEAR(finding.gain_to, 0.7, 1e-6);
  EXPECT_EQ(run_on_a_busy_host(wait, 4).of("cores taken").gain, 0.0);
  const Finding too_many = run_on_a_busy_host(wait, 4).of("more threads than cores");
  EXPECT_NEAR(too_many.gain_from, 0.0, 1e-6) << "the cores go on with the others";
  EXPECT_NEAR(too_many.gain_to, 0.5, 1e-6);
  EXPECT_EQ(run_on_a_busy_host([](HostSample&) {}).of("cores taken").gain, 0.0);
}

TEST(HostRules, AQuotaTakesItsPartOfTheWaiting) {
  const FoundIn run = run_on_a_busy_host([](HostSample& sample) {
    sample.engine_waited_us = 50'000.0;
    sample.any_waited_us = 70'000.0;
    sample.quota_cores = 1.5;
    sample.throttled_us = 60'000.0;
  });
  EXPECT_NEAR(run.of("CPU quota").gain_to, 0.4, 1e-6);
  EXPECT_NEAR(run.of("cores taken").gain_to, 0.3, 1e-6);
}

TEST(HostRules, StolenTimeDiskAndSwap) {
  EXPECT_NEAR(
      run_on_a_busy_host([](HostSample& sample) { sample.stolen_us = 20'000.0; }).of("stolen time").gain_from,
      0.2, 1e-6);
  const auto from_disk = [](int64_t swapped_bytes) {
    return run_on_a_busy_host([swapped_bytes](HostSample& sample) {
      sample.disk_faults = 500;
      sample.disk_stalled_us = 40'000.0;
      sample.swapped_bytes = swapped_bytes;
    });
  };
  EXPECT_NEAR(from_disk(0).of("reads from the disk").gain_to, 0.4, 1e-6);
  EXPECT_EQ(from_disk(0).of("swapping").gain, 0.0);
  EXPECT_NEAR(from_disk(1 << 20).of("swapping").gain_to, 0.4, 1e-6);
  EXPECT_EQ(from_disk(1 << 20).of("reads from the disk").gain, 0.0);
}

TEST(HostRules, ACoreThatRunsSlowly) {
  const auto clocked = [](double mhz) {
    return run_on_a_busy_host([mhz](HostSample& sample) {
             sample.core_mhz = mhz;
             sample.most_core_mhz = 4'000.0;
           })
        .of("slow core");
  };
  EXPECT_NEAR(clocked(3'000.0).gain_to, 0.25, 1e-6);
  EXPECT_EQ(clocked(3'700.0).gain, 0.0);
  EXPECT_EQ(clocked(0.0).gain, 0.0) << "not known";
}

}  // namespace
}  // namespace minfer
