// Readings of devices on their way to a profile: from a reader that counts to the line.
#include <fstream>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/clock.h"
#include "profiling/host/sampler.h"
#include "profiling/json/json_reader.h"
#include "profiling/json/lines.h"
#include "profiling/json/profile_writer.h"
#include "tests/support/json_schema.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/wait.h"

namespace minfer {
namespace {

DeviceSample reading_of_everything() {
  DeviceSample sample{.begin_ns = 1'000, .end_ns = 2'000, .device = 3};
  sample.sm_mhz = 1'410;
  sample.most_sm_mhz = 1'980;
  sample.memory_mhz = 3'200;
  sample.most_memory_mhz = 3'201;
  sample.clock_reasons = clock_reason::power_limit;
  sample.temperature_c = 61;
  sample.power_w = 690.5;
  sample.power_limit_w = 700.0;
  sample.most_power_limit_w = 750.0;
  sample.pcie_generation = 4;
  sample.most_pcie_generation = 5;
  sample.pcie_width = 8;
  sample.most_pcie_width = 16;
  sample.ecc_errors = 2;
  sample.other_processes = 1;
  sample.other_bytes = int64_t{3} << 30;
  sample.memory_traffic = 0.625;
  return sample;
}

TEST(DeviceLines, ReadBackAsWrittenAndAsTheSchemaSays) {
  std::string line;
  append_line(line, reading_of_everything());
  const test::JsonSchema schema(
      nlohmann::json::parse(std::ifstream(source_path("profiling/json/device.schema.json"))));
  const nlohmann::json fields = nlohmann::json::parse(line);
  EXPECT_EQ(schema.check(fields), "");
  for (const auto& [name, value] : fields.items())
    EXPECT_NE(value, 0) << name << " is not set above";
  std::string text;
  append_header_line(text, test::sample_header());
  std::istringstream stream(text + line);
  const ProfileFile file = read_profile(stream, "run.jsonl");
  ASSERT_EQ(file.devices.size(), 1u);
  std::string again;
  append_line(again, file.devices.front());
  EXPECT_EQ(again, line);
}

/// Two devices, read one after the other.
std::vector<DeviceSample> read_two(int64_t& number) {
  std::vector<DeviceSample> samples(2, DeviceSample{.begin_ns = now_ns(), .end_ns = now_ns()});
  samples[1].device = 1;
  for (DeviceSample& sample : samples)
    sample.sm_mhz = static_cast<int32_t>(number);
  ++number;
  return samples;
}

TEST(DeviceSampler, ReadsByItselfAndKeepsTheLast) {
  DeviceSampler sampler(std::chrono::milliseconds(1), 6,
                        [number = int64_t{0}]() mutable { return read_two(number); });
  ASSERT_TRUE(test::wait_until([&] {
    const std::vector<DeviceSample> samples = sampler.after(0);
    return samples.size() == 6 && samples.front().sm_mhz > 10;
  }));
  const std::vector<DeviceSample> samples = sampler.after(0);
  for (size_t i = 2; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].sm_mhz, samples[i - 2].sm_mhz + 1) << "none is left out";
    EXPECT_EQ(samples[i].device, samples[i - 2].device);
  }
}

TEST(DeviceSampler, SamplesOfAllDevicesReachTheFileUpToItsEnd) {
  const test::TemporaryDirectory folder;
  const std::filesystem::path path = folder.path() / "run.jsonl";
  DeviceSampler sampler(std::chrono::hours(1), 100,
                        [number = int64_t{1}]() mutable { return read_two(number); });
  sampler.sample_now();  // ends before the file begins
  WriterOptions options;
  options.devices = &sampler;
  ProfileWriter writer(path, test::sample_header(), options);
  sampler.sample_now();
  writer.close();
  std::vector<int32_t> clocks;
  for (const DeviceSample& sample : read_profile(path).devices)
    clocks.push_back(sample.sm_mhz);
  EXPECT_EQ(clocks, (std::vector<int32_t>{2, 2, 3, 3}));
}

}  // namespace
}  // namespace minfer
