#include "kernels/cpu/product/grid_tables.h"

#include <cstddef>
#include <span>

#include "kernels/quant_grids.h"

namespace minfer::cpu {
namespace {

/// Expands each entry to a word of bytes[digit].
template <class Word>
constexpr void expand(std::span<const uint16_t> entries, std::span<const uint8_t> bytes,
                      std::span<Word> words) {
  constexpr unsigned kDigitBits = 16 / sizeof(Word);
  for (size_t n = 0; n < entries.size(); ++n) {
    words[n] = 0;
    for (unsigned i = 0; i < sizeof(Word); ++i) {
      const unsigned digit = entries[n] >> kDigitBits * i & ((1u << kDigitBits) - 1);
      words[n] |= static_cast<Word>(bytes[digit]) << 8 * i;
    }
  }
}

constexpr GridTables make_tables() {
  constexpr uint8_t kBiased[3] = {128 - 8 + 1, 128 + 1, 128 + 8 + 1};
  GridTables t{};
  expand<uint64_t>(kIq2XxsGrid, kIq2Magnitudes, t.iq2_xxs);
  expand<uint64_t>(kIq2XsGrid, kIq2Magnitudes, t.iq2_xs);
  expand<uint64_t>(kIq2SGrid, kIq2Magnitudes, t.iq2_s);
  expand<uint64_t>(kIq1Grid, kBiased, t.iq1);
  expand<uint32_t>(kIq3XxsGrid, kIq3XxsMagnitudes, t.iq3_xxs);
  expand<uint32_t>(kIq3SGrid, kIq3SMagnitudes, t.iq3_s);
  return t;
}

}  // namespace

constinit const GridTables kGridTables = make_tables();

}  // namespace minfer::cpu
