// Readings of GPUs through NVML, from a library that stands in for it.
#include <filesystem>
#include <limits>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "kernels/device_sample.h"
#include "tests/kernels/fake_nvml.h"

namespace minfer {
namespace {

const std::vector<std::string> kOneDevice{"00112233445566778899aabbccddeeff"};

/// Uses the library beside the test's executable, as it is when loaded.
class DeviceReaderTest : public testing::Test {
 protected:
  const std::string path_ = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fake_nvml.so";
  void* const library_ = dlopen(path_.c_str(), RTLD_NOW);
  test::FakeNvml* const nvml_ =
      library_ != nullptr ? static_cast<test::FakeNvml*>(dlsym(library_, "fake_nvml")) : nullptr;

  void SetUp() override {
    ASSERT_NE(nvml_, nullptr) << path_;
    *nvml_ = {};
  }
  DeviceReader reader(const std::vector<std::string>& ids = kOneDevice) {
    return make_device_reader(ids, path_.c_str());
  }
};

TEST_F(DeviceReaderTest, ReadsWhatNvmlSays) {
  DeviceReader read = reader();
  ASSERT_TRUE(read);
  EXPECT_STREQ(nvml_->uuid.data(), "GPU-00112233-4455-6677-8899-aabbccddeeff");
  const std::vector<DeviceSample> samples = read();
  ASSERT_EQ(samples.size(), 1u);
  const DeviceSample& sample = samples.front();
  EXPECT_LE(sample.begin_ns, sample.end_ns);
  EXPECT_EQ(sample.device, 0);
  EXPECT_EQ(sample.sm_mhz, 1'410);
  EXPECT_EQ(sample.most_sm_mhz, 1'980);
  EXPECT_EQ(sample.memory_mhz, 3'201);
  EXPECT_EQ(sample.most_memory_mhz, 3'201);
  EXPECT_EQ(sample.clock_reasons, clock_reason::power_limit);
  EXPECT_EQ(sample.temperature_c, 61);
  EXPECT_DOUBLE_EQ(sample.power_w, 690.5);
  EXPECT_DOUBLE_EQ(sample.power_limit_w, 700.0);
  EXPECT_DOUBLE_EQ(sample.most_power_limit_w, 750.0);
  EXPECT_EQ(sample.pcie_generation, 4);
  EXPECT_EQ(sample.most_pcie_generation, 5);
  EXPECT_EQ(sample.pcie_width, 8);
  EXPECT_EQ(sample.most_pcie_width, 16);
  EXPECT_EQ(sample.ecc_errors, 3);
  EXPECT_EQ(read().front().begin_ns, sample.end_ns) << "one follows the other";
}

TEST_F(DeviceReaderTest, OtherProcessesAreCountedWithoutThisOne) {
  nvml_->processes = {
      {{static_cast<unsigned>(::getpid()), 1ull << 30}, {4'000'000, 3ull << 30}, {4'000'001, ~0ull}}};
  nvml_->num_processes = 3;
  DeviceReader read = reader();
  DeviceSample sample = read().front();
  EXPECT_EQ(sample.other_processes, 2);
  EXPECT_EQ(sample.other_bytes, int64_t{3} << 30) << "of one it is not known";
  nvml_->processes[0].pid = 4'000'002;  // numbers of the host
  read = reader();
  sample = read().front();
  EXPECT_EQ(sample.other_processes, 2) << "one of the three is this process";
  EXPECT_EQ(sample.other_bytes, 0);
  nvml_->num_processes = 0;  // none is shown
  EXPECT_EQ(reader()().front().other_processes, 0);
  nvml_->num_processes = 1'000;
  EXPECT_EQ(reader()().front().other_processes, 0) << "more than are looked at";
}

TEST_F(DeviceReaderTest, TrafficIsThatBetweenTwoRareReadings) {
  DeviceReader read = reader();
  EXPECT_EQ(read().front().memory_traffic, 0.0) << "there is none before";
  for (int i = 1; i < 10; ++i)
    EXPECT_EQ(read().front().memory_traffic, 0.0);
  EXPECT_DOUBLE_EQ(read().front().memory_traffic, 0.55);
  nvml_->traffic_percent = std::numeric_limits<double>::quiet_NaN();
  for (int i = 0; i < 9; ++i)
    EXPECT_DOUBLE_EQ(read().front().memory_traffic, 0.55);
  EXPECT_EQ(read().front().memory_traffic, 0.0);
  EXPECT_EQ(nvml_->samples, 2);
  read = {};
  EXPECT_EQ(nvml_->samples, 0);
}

TEST_F(DeviceReaderTest, WhatIsNotSaidIsZero) {
  nvml_->result = 3;  // not supported
  nvml_->num_processes = 2;
  DeviceReader read = reader();
  ASSERT_TRUE(read);
  const DeviceSample sample = read().front();
  EXPECT_EQ(sample.sm_mhz, 0);
  EXPECT_EQ(sample.clock_reasons, 0);
  EXPECT_EQ(sample.power_w, 0.0);
  EXPECT_EQ(sample.ecc_errors, 0);
  EXPECT_EQ(sample.other_processes, 0);
  EXPECT_EQ(sample.memory_traffic, 0.0);
}

TEST_F(DeviceReaderTest, NumbersThatAreNoMeasurementsAreBounded) {
  nvml_->sm_mhz = ~0u;
  nvml_->clock_reasons = ~0ull;
  const DeviceSample sample = reader()().front();
  EXPECT_EQ(sample.sm_mhz, 1 << 28) << "what a profile may have";
  EXPECT_EQ(sample.clock_reasons, 1 << 28);
}

TEST_F(DeviceReaderTest, DevicesThatNvmlDoesNotKnowAreLeftOut) {
  const std::vector<DeviceSample> samples =
      reader({"ff112233445566778899aabbccddeeff", "00112233445566778899aabbccddeeff"})();
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples.front().device, 1);
  EXPECT_FALSE(reader({"ff"}));
  EXPECT_FALSE(reader({}));
  EXPECT_FALSE(make_device_reader(kOneDevice, "no-such-library.so.1"));
}

}  // namespace
}  // namespace minfer
