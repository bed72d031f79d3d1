#include <gtest/gtest.h>

#include "kernels/cuda/device/devices.h"

namespace minfer {
namespace {

/// From the CUDA C++ Programming Guide's table of technical specifications.
struct KnownDevice {
  int32_t major, minor;
  int64_t block_kib;
  bool fits_large, fits_small, has_hopper_tensor_cores, has_early_starts;
};
constexpr KnownDevice kDevices[] = {
    {7, 5, 64, false, false, false, false}, {8, 0, 163, true, true, false, false},
    {8, 6, 99, false, true, false, false},  {8, 9, 99, false, true, false, false},
    {9, 0, 227, true, true, true, true},    {10, 0, 227, true, true, false, true},
    {12, 0, 99, false, true, false, true},
};

CudaDevice device_of(const KnownDevice& known) {
  return {.name = "a GPU", .major = known.major, .minor = known.minor, .shared_bytes = known.block_kib << 10};
}

TEST(DeviceChoice, TakesWhatTheKernelsRunOn) {
  for (const KnownDevice& known : kDevices) {
    const CudaDevice device = device_of(known);
    EXPECT_EQ(is_usable_with(device, 163 << 10), known.fits_large) << known.major << '.' << known.minor;
    EXPECT_EQ(is_usable_with(device, kLeastSharedBytes), known.fits_small)
        << known.major << '.' << known.minor;
    EXPECT_EQ(is_usable(device), is_usable_with(device, kNeededSharedBytes));
    EXPECT_EQ(has_hopper_tensor_cores(known.major, known.minor), known.has_hopper_tensor_cores);
    EXPECT_EQ(has_early_starts(known.major), known.has_early_starts);
  }
}

}  // namespace
}  // namespace minfer
