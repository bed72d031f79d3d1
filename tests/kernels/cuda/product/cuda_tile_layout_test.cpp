#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/weights/tile_words.cuh"
#include "tests/reference/dequantise.h"
#include "tests/support/random_data.h"

/// Blocks of a file, written to a tile and read back, on the CPU, by the functions that the GPU runs.
namespace minfer::cuda {
namespace {

constexpr uint8_t kFills[] = {0xa5, 0x5a};

/// A tile of the first rows and columns of a matrix, in memory whose bytes were all `fill`.
template <DType type, class Block>
std::vector<uint4> tile_of(const std::vector<uint8_t>& raw, DType file_type, int rows, int cols,
                           uint8_t fill) {
  using T = Tile<type>;
  std::vector<uint4> memory(T::kBytes / sizeof(uint4) + 1);
  auto* tile = reinterpret_cast<uint8_t*>(memory.data());
  std::fill_n(tile, memory.size() * sizeof(uint4), fill);
  const Rows part{raw.data(), static_cast<int64_t>(row_bytes(file_type, cols)), 0, rows, cols, nullptr};
  const Source<type, Block> source{part, 0, 0};
  for (int i = 0; i < T::kScalesAt / 4; ++i)
    reinterpret_cast<uint32_t*>(tile)[i] = code_word(source, i);
  for (int lane = 0; lane < 32; ++lane)
    store_lane_scales(source, lane, tile);
  for (size_t i = T::kBytes; i < memory.size() * sizeof(uint4); ++i)
    EXPECT_EQ(tile[i], fill) << name(type) << ": behind the tile";
  return memory;
}

template <DType type, class Block>
void expect_all_elements(DType file_type) {
  for (const auto& [rows, cols] :
       {std::pair{16, 256}, {5, traits(file_type).block_elements == 32 ? 96 : 256}}) {
    const std::vector<uint8_t> raw = test::random_weights(file_type, rows, cols, 3);
    const reference::Matrix expected = reference::dequantise(raw.data(), file_type, rows, cols);
    for (const uint8_t fill : kFills) {
      const std::vector<uint4> memory = tile_of<type, Block>(raw, file_type, rows, cols, fill);
      const auto* tile = reinterpret_cast<const uint8_t*>(memory.data());
      for (int row = 0; row < kStripRows; ++row) {
        for (int col = 0; col < kTileCols; col += 4) {
          const float4 four = tile_values<type>(tile, row, col);
          const float found[] = {four.x, four.y, four.z, four.w};
          for (int i = 0; i < 4; ++i) {
            const double value = row < rows && col + i < cols ? expected.at(row, col + i) : 0.0;
            ASSERT_NEAR(found[i], value, 1e-6 * std::abs(value) + 1e-9)
                << name(file_type) << " as " << name(type) << ", row " << row << " column " << col + i;
          }
        }
      }
    }
  }
}

TEST(CudaTileLayout, KeepsEveryElement) {
  expect_all_elements<DType::q4_0, BlockQ4_0>(DType::q4_0);
  expect_all_elements<DType::q4_1, BlockQ4_1>(DType::q4_1);
  expect_all_elements<DType::q5_0, BlockQ5_0>(DType::q5_0);
  expect_all_elements<DType::q5_1, BlockQ5_1>(DType::q5_1);
  expect_all_elements<DType::q8_0, BlockQ8_0>(DType::q8_0);
  expect_all_elements<DType::q2_k, BlockQ2K>(DType::q2_k);
  expect_all_elements<DType::q3_k, BlockQ3K>(DType::q3_k);
  expect_all_elements<DType::q4_k, BlockQ4K>(DType::q4_k);
  expect_all_elements<DType::q5_k, BlockQ5K>(DType::q5_k);
  expect_all_elements<DType::q6_k, BlockQ6K>(DType::q6_k);
  expect_all_elements<DType::iq4_nl, BlockIq4Nl>(DType::iq4_nl);
  expect_all_elements<DType::iq4_xs, BlockIq4Xs>(DType::iq4_xs);
  expect_all_elements<DType::mxfp4, BlockMxfp4>(DType::mxfp4);
}

TEST(CudaTileLayout, KeepsWhatBecomesAnotherType) {
  expect_all_elements<DType::q2_k, BlockTq1_0>(DType::tq1_0);
  expect_all_elements<DType::q2_k, BlockTq2_0>(DType::tq2_0);
  expect_all_elements<DType::lut4, BlockIq2Xxs>(DType::iq2_xxs);
  expect_all_elements<DType::lut4, BlockIq2Xs>(DType::iq2_xs);
  expect_all_elements<DType::lut4, BlockIq2S>(DType::iq2_s);
  expect_all_elements<DType::lut4, BlockIq3Xxs>(DType::iq3_xxs);
  expect_all_elements<DType::lut4, BlockIq3S>(DType::iq3_s);
  expect_all_elements<DType::lut4, BlockIq1S>(DType::iq1_s);
  expect_all_elements<DType::lut4, BlockIq1M>(DType::iq1_m);
}

TEST(CudaTileLayout, KeepsExpertsThatAreConverted) {
  expect_all_elements<DType::q6_k, BlockTq1_0>(DType::tq1_0);
  expect_all_elements<DType::q6_k, BlockTq2_0>(DType::tq2_0);
  expect_all_elements<DType::q6_k, BlockQ3K>(DType::q3_k);
  expect_all_elements<DType::q8_0, BlockQ5_0>(DType::q5_0);
  expect_all_elements<DType::q8_0, BlockIq4Nl>(DType::iq4_nl);
}

/// All pairs of codes, beside other codes that must have no effect.
TEST(CudaTileLayout, PairsOfE2m1AreF16) {
  constexpr float kNumbers[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (int pair = 0; pair < 4; ++pair) {
    for (uint32_t codes = 0; codes < 256; ++codes) {
      for (const int other : {0, 5, 10, 15}) {
        const uint32_t word = e2m1_word(
            [&](int /*row*/, int col) {
              const int of_pair = col - pair_column(0, pair);
              return of_pair == 0   ? static_cast<int>(codes & 15)
                     : of_pair == 1 ? static_cast<int>(codes >> 4)
                                    : other;
            },
            0);
        const uint32_t halves = e2m1_halves(word, pair);
        for (int second = 0; second < 2; ++second) {
          const uint32_t code = codes >> (4 * second) & 15;
          const auto bits = static_cast<uint16_t>(halves >> (16 * second));
          const float expected = (code & 8) != 0 ? -kNumbers[code & 7] : kNumbers[code];
          ASSERT_EQ(__half2float(__ushort_as_half(bits)) * 0x1p14f, expected)
              << "pair " << pair << ", code " << code << " beside " << other;
          ASSERT_EQ(bits >> 15, code >> 3);
        }
      }
    }
  }
}

}  // namespace
}  // namespace minfer::cuda
