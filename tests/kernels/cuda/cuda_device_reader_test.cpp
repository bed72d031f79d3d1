// Reads the real device through the driver's library.
#include <chrono>
#include <cstdio>
#include <thread>

#include <gtest/gtest.h>

#include "kernels/device_sample.h"
#include "tests/support/cuda/cuda_device.h"

namespace minfer {
namespace {

TEST(CudaDeviceReader, ReadsTheDevice) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  const std::vector<std::string> ids{cuda_devices().front().id};
  DeviceReader read = make_device_reader(ids);
  if (!read) GTEST_SKIP() << "no NVML, or it does not know " << ids.front();
  std::vector<DeviceSample> samples;
  for (int i = 0; i < 21; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    samples.push_back(read().front());
    const auto took = std::chrono::steady_clock::now() - begin;
    std::printf("reading %d: %.0f us\n", i, std::chrono::duration<double, std::micro>(took).count());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const DeviceSample& last = samples.back();
  std::printf("%d of %d MHz, memory %d of %d, reasons %#x, %d C, %.1f of %.1f (%.1f) W\n", last.sm_mhz,
              last.most_sm_mhz, last.memory_mhz, last.most_memory_mhz,
              static_cast<unsigned>(last.clock_reasons), last.temperature_c, last.power_w, last.power_limit_w,
              last.most_power_limit_w);
  std::printf("PCIe %d x%d of %d x%d, %d ECC errors, %d other processes with %.2f GiB, traffic %.1f %%\n",
              last.pcie_generation, last.pcie_width, last.most_pcie_generation, last.most_pcie_width,
              last.ecc_errors, last.other_processes, static_cast<double>(last.other_bytes) / (1 << 30),
              100.0 * last.memory_traffic);
  for (const DeviceSample& sample : samples) {
    EXPECT_GT(sample.sm_mhz, 0);
    EXPECT_LE(sample.sm_mhz, sample.most_sm_mhz);
    EXPECT_GT(sample.memory_mhz, 0);
    EXPECT_LE(sample.memory_mhz, sample.most_memory_mhz);
    EXPECT_GT(sample.power_w, 0.0);
    EXPECT_LE(sample.power_w, 1.1 * sample.power_limit_w);
    EXPECT_LE(sample.power_limit_w, sample.most_power_limit_w);
    EXPECT_GT(sample.temperature_c, 0);
    EXPECT_LT(sample.temperature_c, 120);
    EXPECT_LE(sample.pcie_width, sample.most_pcie_width);
    EXPECT_GE(sample.other_processes, 0);
    EXPECT_LE(sample.memory_traffic, 1.0);
  }
}

}  // namespace
}  // namespace minfer
