#include <gtest/gtest.h>

#include "models/tokenizer/utf8.h"
#include "tests/support/cpu_time.h"

namespace minfer {
namespace {

TEST(NormalForm, ComposesAndOrders) {
  EXPECT_EQ(to_nfc("plain"), "plain");
  EXPECT_EQ(to_nfc("e\u0301 A\u030A"), "é Å");
  EXPECT_EQ(to_nfc("\u212B\u2126"), "Å\u03A9");         // singletons
  EXPECT_EQ(to_nfc("\u1100\u1161\u11A8"), "각");        // Hangul
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");  // canonical order
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C");          // excluded from composition
  EXPECT_EQ(to_nfc("ﬁ ２"), "ﬁ ２");                    // compatibility characters stay
  EXPECT_EQ(to_nfc(std::string_view("\0é\0", 4)), std::string_view("\0é\0", 4));
}

TEST(NormalForm, BytesThatAreNotUtf8Stay) {
  EXPECT_EQ(to_nfc("e\u0301\xFF\xC3"), "é\xFF\xC3");
  EXPECT_EQ(to_nfc("\xE2\x82 e\u0301"), "\xE2\x82 é");
}

TEST(NormalForm, ALongRunOfUnorderedMarksTakesLinearTime) {
  std::string text = "a";
  for (int i = 0; i < 100000; ++i)
    text += "\u0301\u0316";
  const double start = test::thread_cpu_seconds();
  EXPECT_GE(to_nfc(text).size(), text.size() - 2);
  // 20 ms; sorting the whole run by insertion takes minutes.
  EXPECT_LT(test::thread_cpu_seconds() - start, 30.0);
}

}  // namespace
}  // namespace minfer
