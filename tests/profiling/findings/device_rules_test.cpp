// Rules about the causes that hold a GPU back, on synthetic readings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiling/findings/findings_report.h"
#include "tests/support/found_in.h"

namespace minfer {
namespace {

using test::device_header;
using test::FoundIn;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kNone = [](DeviceSample&) {};

/// One of ten readings in the time of all steps, of a device at its highest clock.
DeviceSample reading(int64_t number, int32_t device = 0) {
  constexpr int64_t kNs = 10'000'000;
  DeviceSample sample{.begin_ns = 1'000'000 + number * kNs, .end_ns = 1'000'000 + (number + 1) * kNs};
  sample.device = device;
  sample.sm_mhz = sample.most_sm_mhz = 1'980;
  sample.memory_mhz = sample.most_memory_mhz = 3'201;
  sample.temperature_c = 61;
  sample.power_w = 400.0;
  sample.power_limit_w = sample.most_power_limit_w = 700.0;
  sample.pcie_generation = sample.most_pcie_generation = 5;
  sample.pcie_width = sample.most_pcie_width = 16;
  return sample;
}

template <class Change>
void read_device(FoundIn& run, Change change, int32_t device = 0) {
  for (int64_t i = 0; i < 10; ++i) {
    DeviceSample sample = reading(i, device);
    change(sample);
    run.evidence.device(sample);
  }
  DeviceSample idle = reading(5, device);
  idle.clock_reasons = clock_reason::idle;
  idle.sm_mhz = 345;
  run.evidence.device(idle);  // the GPU was idle
  DeviceSample behind = reading(50, device);
  behind.sm_mhz = 300;
  behind.clock_reasons = clock_reason::heat;
  run.evidence.device(behind);  // no step ran then
}

/// Steps whose products are bound by arithmetic, 80 % of the time.
void compute(StepSummary& step) {
  step.ops[0].bound = Bound::compute;
}

template <class Change>
FoundIn run_of(Change change) {
  FoundIn run;
  run.steps(compute);
  read_device(run, change);
  return run;
}

TEST(DeviceRules, NothingHoldsBackADeviceAtItsHighestClock) {
  EXPECT_EQ(run_of(kNone).of("clocks held back").gain, 0.0);
  EXPECT_THAT(findings_text(diagnose(run_of(kNone).evidence), false),
              HasSubstr("GPU of rank 0 at 1980 of 1980"));
}

TEST(DeviceRules, Heat) {
  const auto hot = [](DeviceSample& sample) {
    sample.clock_reasons = clock_reason::heat | clock_reason::power_limit;
    sample.sm_mhz = 990;
    sample.temperature_c = 92;
  };
  const FoundIn run = run_of(hot);
  const Finding finding = run.of("clocks held back");
  EXPECT_NEAR(finding.gain_from, 0.5 * 0.8, 1e-6) << "of the products, which go with the clock";
  EXPECT_NEAR(finding.gain_to, 0.5 * 0.99, 1e-6) << "of all ops";
  EXPECT_THAT(finding.evidence,
              HasSubstr("heat holds back the GPU of rank 0: at 400 of 700 W and 92 C the clock is "
                        "990 of 1980 MHz, in 100 % of the readings"));
  EXPECT_THAT(next_limit(run.evidence, {}).text, Not(HasSubstr("Bound by power")))
      << "heat is the graver one";
}

TEST(DeviceRules, TheWorstOfSeveralDevices) {
  FoundIn run;
  run.steps(compute);
  read_device(run, kNone, 0);
  read_device(
      run,
      [](DeviceSample& sample) {
        sample.clock_reasons = clock_reason::power_brake;
        sample.sm_mhz = 1'485;
      },
      1);
  const Finding finding = run.of("clocks held back");
  EXPECT_THAT(finding.evidence, HasSubstr("the GPU of rank 1"));
  EXPECT_NEAR(finding.gain_from, 0.25 * 0.8, 1e-6);
}

TEST(DeviceRules, APowerLimitThatIsTheHardwaresIsInTheVerdict) {
  const auto at_limit = [](double most_w) {
    return run_of([most_w](DeviceSample& sample) {
      sample.clock_reasons = clock_reason::power_limit;
      sample.sm_mhz = 1'386;
      sample.power_w = 690.0;
      sample.most_power_limit_w = most_w;
    });
  };
  const FoundIn hardware = at_limit(700.0);
  EXPECT_EQ(hardware.of("clocks held back").gain, 0.0);
  const Limit limit = next_limit(hardware.evidence, {});
  EXPECT_TRUE(limit.is_of_hardware);
  EXPECT_THAT(limit.text,
              HasSubstr("Bound by power: at 690 of 700 W and 61 C the clock is 1386 of 1980 MHz"));
  EXPECT_THAT(limit.text, HasSubstr("as with FP8 weights"));
  const Finding lowered = at_limit(900.0).of("clocks held back");
  EXPECT_EQ(lowered.gain_from, 0.0);
  EXPECT_NEAR(lowered.gain_to, 0.3 * 0.99, 1e-6);
  EXPECT_THAT(lowered.evidence, HasSubstr("900 W could be set"));
}

TEST(DeviceRules, PowerBoundsNothingThatWaitsForTheMemory) {
  FoundIn run;
  run.steps(test::kUnchanged);
  read_device(run, [](DeviceSample& sample) {
    sample.sm_mhz = 1'386;
    sample.power_w = 690.0;  // at its limit, whatever the reasons are
  });
  EXPECT_THAT(next_limit(run.evidence, {}).text, HasSubstr("Bound by memory bandwidth"));
  EXPECT_THAT(next_limit(run_of([](DeviceSample& sample) {
                           sample.sm_mhz = 1'386;
                           sample.power_w = 690.0;
                         }).evidence,
                         {})
                  .text,
              HasSubstr("Bound by power"));
}

TEST(DeviceRules, AClockThatIsSetLower) {
  const auto locked = [](DeviceSample& sample) { sample.sm_mhz = 1'188; };  // NVML gives no reason
  EXPECT_THAT(run_of(locked).of("clocks held back").evidence, HasSubstr("a setting of its clock"));
  EXPECT_NEAR(run_of(locked).of("clocks held back").gain_from, 0.4 * 0.8, 1e-6);
  const auto rising = [](DeviceSample& sample) {
    if (sample.begin_ns < 50'000'000) sample.sm_mhz = 1'188;
  };
  EXPECT_EQ(run_of(rising).of("clocks held back").gain, 0.0) << "it does get higher";
  const auto named = [&](DeviceSample& sample) {
    rising(sample);
    sample.clock_reasons = clock_reason::setting;
  };
  EXPECT_NEAR(run_of(named).of("clocks held back").gain_from, 0.5 * 0.4 * 0.8, 1e-6);
}

TEST(DeviceRules, WhatIsNotAsItCouldBeStandsBesideTheSteps) {
  const FoundIn run = run_of([](DeviceSample& sample) {
    sample.pcie_generation = sample.begin_ns < 50'000'000 ? 1 : 4;  // slow while it is idle
    sample.pcie_width = 8;
    sample.ecc_errors = 3;
    sample.memory_mhz = 1'593;
  });
  const std::string text = devices_text(run.evidence);
  EXPECT_THAT(text, HasSubstr("PCIe 4.0 x8 where 5.0 x16 could be"));
  EXPECT_THAT(text, HasSubstr("its memory at 1593 of 3201 MHz"));
  EXPECT_THAT(text, HasSubstr("3 ECC errors that were not corrected"));
  std::string json;
  JsonText writer(json);
  write_findings(writer, diagnose(run.evidence));
  simdjson::dom::parser parser;
  EXPECT_EQ(diagnosis_of(JsonField(parser.parse(json).value(), "run")).devices, text);
}

TEST(DeviceRules, ClocksOfARunThatGetsSlower) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    if (step.step < 50) return;
    for (OpSummary& op : step.ops)
      op.us *= 1.25;
    step.gpu_us *= 1.25;
  });
  EXPECT_THAT(run.of("slower with time").evidence, HasSubstr("clocks were not read"));
  read_device(run, [](DeviceSample& sample) {
    if (sample.begin_ns >= 50'000'000) sample.sm_mhz = 1'584;
  });
  EXPECT_THAT(run.of("slower with time").evidence, HasSubstr("clock was 1980 MHz and then 1584 MHz"));
}

// --- Another process

/// A header whose products read weights of that many bytes.
ProfileHeader header_with_weights(double bytes) {
  ProfileHeader header = device_header();
  OpInfo& qkv = header.ops.front();
  qkv.in_features = qkv.out_features = 4'096;
  qkv.weight_bytes = static_cast<int64_t>(bytes * 4'096 * 4'096);
  return header;
}

/// All steps alike: products and attention reach this share of the roofline.
FoundIn shared_run(double roofline, double bytes_of_weight = 2.0) {
  FoundIn run(header_with_weights(bytes_of_weight));
  run.steps([&](StepSummary& step) {
    for (OpSummary& op : step.ops) {
      op.floor_us = op.us * roofline;
      op.bytes = static_cast<int64_t>(op.floor_us * 4'000e3);  // at the ceiling of 4,000 GB/s
    }
  });
  return run;
}

void add_neighbour(FoundIn& run, double traffic) {
  read_device(run, [traffic](DeviceSample& sample) {
    sample.other_processes = 1;
    sample.other_bytes = int64_t{3} << 30;
    sample.memory_traffic = traffic;
  });
}

TEST(DeviceRules, ANeighbourThatCopiesAllAlongIsFoundByWhatProductsUsuallyReach) {
  FoundIn run = shared_run(0.36);
  EXPECT_EQ(run.of("another process").gain, 0.0) << "nobody is there";
  add_neighbour(run, 0.0);
  const Finding finding = run.of("another process");
  EXPECT_EQ(run.first(), "another process");
  EXPECT_NEAR(finding.gain_from, 0.8 * (1.0 - 0.36 / 0.65), 0.001) << "the products alone, against the least";
  EXPECT_NEAR(finding.gain_to, 0.99 * (1.0 - 0.36 / 0.93), 0.001) << "attention likewise, against the most";
  EXPECT_THAT(finding.evidence, HasSubstr("1 other process uses the device and 3.0 GiB of its memory"));
  EXPECT_THAT(finding.evidence,
              HasSubstr("products reach 36 % of the memory's roof, where 65 to 93 % are usual"));
}

TEST(DeviceRules, ANeighbourThatRestsTakesNothing) {
  FoundIn usual = shared_run(0.7);
  add_neighbour(usual, 0.0);
  EXPECT_EQ(usual.of("another process").gain, 0.0);
  FoundIn quantised = shared_run(0.36, 0.5625);  // as it is without another process
  add_neighbour(quantised, 0.0);
  EXPECT_EQ(quantised.of("another process").gain, 0.0);
  FoundIn slow = shared_run(0.36);
  add_neighbour(slow, 0.38);  // all traffic is this process's
  EXPECT_EQ(slow.of("another process").gain, 0.0) << "slow, but not by the neighbour";
}

TEST(DeviceRules, TheMemorysTrafficSaysWhatANeighbourTook) {
  FoundIn run = shared_run(0.36);
  add_neighbour(run, 0.9);
  const Finding finding = run.of("another process");
  EXPECT_NEAR(finding.gain_from, 0.8 * (1.0 - 0.36 / 0.65), 0.001);
  EXPECT_NEAR(finding.gain_to, 0.99 * (1.0 - 0.36 / 0.93), 0.001)
      << "products tell it better than the traffic";
  EXPECT_THAT(finding.evidence, HasSubstr("the memory moved 90 % of what it can, 36 % for this process"));
  FoundIn unknown_weights = shared_run(0.36, 0.1);
  add_neighbour(unknown_weights, 0.9);
  EXPECT_EQ(unknown_weights.of("another process").gain_from, 0.0);
  EXPECT_NEAR(unknown_weights.of("another process").gain_to, 0.99 * (1.0 - 0.99 * 0.36 / 0.9), 0.001)
      << "by the traffic alone";
}

TEST(DeviceRules, ANeighbourThatTakesTurnsIsFoundInALongRun) {
  ProfileHeader header = device_header();
  header.memory = {
      .total_bytes = 100ll << 30, .used_bytes = 50ll << 30, .used_before_bytes = 20ll << 30, .parts = {}};
  FoundIn run(header);
  for (int64_t i = 0; i < 20'000; ++i) {  // two of three steps wait for their turn
    StepSummary step = test::device_step(i);
    if (i % 3 != 0) step.gpu_us *= 2.5;
    run.evidence.add(step);
  }
  EXPECT_NEAR(run.evidence.disturbed_us() / run.evidence.steps.ops_us(), 0.5, 0.01);
}

TEST(DeviceRules, StepsOfOtherBatchesAreNoBest) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    if (step.step % 50 < 25) return;
    step.batch.shape.decode_sequences = 1;  // a step closer to its roofline
    step.gpu_us *= 0.7;
  });
  EXPECT_NEAR(run.evidence.disturbed_us(), 0.0, 1e-6);
}

TEST(DeviceRules, ReadingsOfADayStayFew) {
  FoundIn run;
  for (int64_t i = 0; i < 900'000; ++i) {
    DeviceSample sample = reading(0);
    sample.sm_mhz = i < 450'000 ? 1'980 : 990;
    run.evidence.device(sample);
  }
  run.steps(test::kUnchanged);
  const auto devices = run.evidence.devices();
  EXPECT_LE(devices.at(0).size(), 1'024u);
  EXPECT_EQ(clock_with_time(run.evidence), "1980 MHz and then 990 MHz");
}

}  // namespace
}  // namespace minfer
