// Files whose matrices have different plain types.
#include <array>

#include <gtest/gtest.h>

#include "tests/support/models/typed_logits.h"

namespace minfer {
namespace {

TEST(MixedTypes, MatricesInBf16AndF16GiveTheBitsOfTheSameValuesInF32) {
  using enum DType;
  for (const int32_t experts : {0, 4}) {
    const std::vector<float> expected = test::logits_with(std::array{f32}, experts, DeviceChoice::cpu);
    ASSERT_FALSE(expected.empty());
    EXPECT_NE(expected.front(), expected.back());
    EXPECT_EQ(test::logits_with(std::array{bf16, f16}, experts, DeviceChoice::cpu), expected)
        << experts << " experts";
    EXPECT_EQ(test::logits_with(std::array{f16, f16, bf16}, experts, DeviceChoice::cpu), expected)
        << experts << " experts";
    EXPECT_EQ(test::logits_with(std::array{bf16, f32, f16}, experts, DeviceChoice::cpu), expected)
        << experts << " experts";
  }
}

}  // namespace
}  // namespace minfer
