// The grids of the iq formats, entry by entry.
#include "kernels/quant_grids.h"

#include <span>

#include <gtest/gtest.h>

namespace minfer {
namespace {

/// CRC-32 (zlib's) of the digits of all entries in order, one byte each.
uint32_t checksum(std::span<const uint16_t> entries, int digits) {
  uint32_t crc = ~0u;
  for (const uint16_t entry : entries) {
    for (int i = 0; i < digits; ++i) {
      crc ^= entry >> 16 / digits * i & ((1u << 16 / digits) - 1);
      for (int bit = 0; bit < 8; ++bit)
        crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
  }
  return ~crc;
}

/// tests/kernels/data/make_dequantised_rows.py prints the sums, from the `gguf` package's tables.
TEST(QuantGrids, AreThoseOfTheReferencePackage) {
  EXPECT_EQ(checksum(kIq2XxsGrid, 8), 0x07ae111au);
  EXPECT_EQ(checksum(kIq2XsGrid, 8), 0x2a53f348u);
  EXPECT_EQ(checksum(kIq2SGrid, 8), 0xfeaeecabu);
  EXPECT_EQ(checksum(kIq1Grid, 8), 0xdfdd9b5fu);
  EXPECT_EQ(checksum(kIq3XxsGrid, 4), 0x63538d0cu);
  EXPECT_EQ(checksum(kIq3SGrid, 4), 0x705e0a2eu);
}

}  // namespace
}  // namespace minfer
