#include <gtest/gtest.h>

#include "server/http/http_message.h"

namespace minfer {
namespace {

TEST(HttpUrl, EscapesAreDecodedAndOtherTextStays) {
  EXPECT_EQ(percent_decoded("org%2Fname+x%e2%82%ac"), "org/name+x\u20ac");
  EXPECT_EQ(percent_decoded("100%"), "100%");
  EXPECT_EQ(percent_decoded("%zz%4"), "%zz%4");
}

}  // namespace
}  // namespace minfer
