#include "profiling/page/device_time.h"

#include <gtest/gtest.h>

namespace minfer {
namespace {

/// A step of 100 us: 60 us for the prompts of `prefilling` requests, if there are any, and the rest for `decoding` ones.
StepSummary step(int64_t number, int32_t prefilling, int32_t decoding) {
  StepSummary summary;
  summary.step = number;
  summary.gpu_us = 100.0;
  summary.batch.shape.prefill_sequences = prefilling;
  summary.batch.shape.decode_sequences = decoding;
  summary.prefill.us = prefilling == 0 ? 0.0 : decoding == 0 ? 100.0 : 60.0;
  summary.decode.us = 100.0 - summary.prefill.us;
  return summary;
}

TEST(DeviceTime, GivesEachRequestItsPart) {
  DeviceTime device;
  device.add(step(10, 2, 0));
  device.add(step(11, 1, 2));
  device.add(step(12, 0, 3));
  // Two steps computed its prompt and in one it decoded: 50 + 60, and a third of 100.
  const DeviceTime::Part part = device.of({.first = 10, .last = 12, .prefill = 2, .decode = 1});
  EXPECT_NEAR(part.us, 50.0 + 60.0 + 100.0 / 3, 1e-9);
  EXPECT_NEAR(part.share, part.us / 300.0, 1e-9);
  // One prompt step, then decoding.
  EXPECT_NEAR(device.of({.first = 10, .last = 12, .prefill = 1, .decode = 2}).us, 50.0 + 20.0 + 100.0 / 3,
              1e-9);
  EXPECT_NEAR(device.of({.first = 12, .last = 12, .prefill = 0, .decode = 1}).share, 1.0 / 3, 1e-9);
}

TEST(DeviceTime, ARequestThatPausedHasTheMeanOfTheStepsMeanwhile) {
  DeviceTime device;
  for (int64_t i = 0; i < 10; ++i)
    device.add(step(i, 0, 4));
  EXPECT_NEAR(device.of({.first = 0, .last = 9, .prefill = 0, .decode = 5}).us, 125.0, 1e-9);
}

TEST(DeviceTime, WhatIsNotHeldIsNotKnown) {
  DeviceTime device;
  EXPECT_LT(device.of({.first = 0, .last = 1, .prefill = 1, .decode = 1}).us, 0.0);
  device.add(step(5, 1, 0));
  EXPECT_LT(device.of({.first = 4, .last = 5, .prefill = 1, .decode = 1}).us, 0.0);
  EXPECT_LT(device.of({.first = 5, .last = 6, .prefill = 1, .decode = 1}).us, 0.0) << "it goes on";
  EXPECT_LT(device.of({}).us, 0.0) << "no step served it";
  EXPECT_GE(device.of({.first = 5, .last = 5, .prefill = 1, .decode = 0}).us, 0.0);
}

}  // namespace
}  // namespace minfer
