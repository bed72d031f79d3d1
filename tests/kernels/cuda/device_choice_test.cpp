#include <gtest/gtest.h>

#include "kernels/cuda/device/devices.h"

namespace minfer {
namespace {

CudaDevice device(int32_t major, int64_t shared_kib) {
  return {.name = "a GPU", .major = major, .shared_bytes = shared_kib << 10};
}

TEST(DeviceChoice, TakesWhatTheKernelsRunOn) {
  EXPECT_TRUE(is_usable(device(9, 227)));   // H200
  EXPECT_FALSE(is_usable(device(7, 227)));  // too old, whatever its memory
  EXPECT_FALSE(is_usable(device(8, 163)));  // A100: too little shared memory
  EXPECT_FALSE(is_usable(device(12, 99)));
}

}  // namespace
}  // namespace minfer
