#pragma once

#include <cstdint>

namespace minfer::cpu {

/// The grids of kernels/quant_grids.h as bytes, element i in byte i of a word: the lookup tables for decoders of the iq formats.
struct GridTables {
  uint64_t iq2_xxs[256];
  uint64_t iq2_xs[512];
  uint64_t iq2_s[1024];
  uint64_t iq1[2048];  ///< 128 + 8 element + 1
  uint32_t iq3_xxs[256];
  uint32_t iq3_s[512];
};
extern const GridTables kGridTables;

}  // namespace minfer::cpu
