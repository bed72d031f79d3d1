#pragma once

#include <type_traits>

#include "kernels/cuda/weights/grid_blocks.cuh"
#include "kernels/cuda/weights/quant_tile.cuh"
#include "kernels/cuda/weights/raw_blocks.cuh"
#include "kernels/cuda/weights/store_rows.cuh"

/// Makes the words of a tile (quant_tile.cuh) from the blocks of a file. It runs on the host too, so that tests need no GPU.
namespace minfer::cuda {

/// One tile's source: element access with zeros outside of the matrix.
template <DType type, class Block>
struct Source {
  const Rows& rows;
  int64_t first_row;
  int64_t first_col;

  /// The block that holds element (row, col) of the tile, or null.
  __host__ __device__ const Block* block(int row, int col) const {
    const int64_t r = first_row + row;
    const int64_t c = first_col + col;
    if (r >= rows.end_row || c >= rows.cols) return nullptr;
    return reinterpret_cast<const Block*>(rows.raw + (r - rows.first_row) * rows.row_bytes) +
           c / kBlockCols<Block>;
  }
  /// The code of an element, or the number that becomes its code in another type.
  __host__ __device__ int operator()(int row, int col) const {
    constexpr bool kConverts = is_one_of<type, DType::q8_0, DType::q6_k> &&
                               !std::is_same_v<Block, BlockQ8_0> && !std::is_same_v<Block, BlockQ6K>;
    const Block* b = block(row, col);
    if (b == nullptr) return 0;
    if constexpr (kConverts) return number(*b, col % kBlockCols<Block>) + Tile<type>::kOffset;
    return code(*b, col % kBlockCols<Block>);
  }
};

/// A word of the quants plane of q8_0 and fp8, from code(row, column) of a tile.
template <class Code>
__host__ __device__ inline uint32_t byte_word(const Code& code, int word) {
  const int row = word / 4 % kStripRows;
  const int col = 16 * (word / 64) + 2 * (word % 4);
  return (code(row, col) & 255) | (code(row, col + 1) & 255) << 16 | (code(row, col + 8) & 255) << 8 |
         (code(row, col + 9) & 255) << 24;
}

/// A word of another plane: bits kFirst ... of the codes of 16 / kBits pairs.
template <int kBits, int kFirst, class Code>
__host__ __device__ inline uint32_t plane_word(const Code& code, int word) {
  constexpr int kPairs = 16 / kBits;
  constexpr uint32_t kMask = (1u << kBits) - 1;
  const int lane = word / 4 % 32;
  const int first_word = (word / 128 * 4 + word % 4) * (kPairs / 4);  // of the lane's sixteen of 4 bits
  uint32_t bits = 0;
  for (int i = 0; i < kPairs; ++i) {
    const int w = first_word + i / 4;
    const int row = lane / 4 + 8 * (w % 2);
    const int col = 32 * (w / 2) + pair_column(lane % 4, i % 4);
    const int shift = plane_shift<kBits>(w, i % 4);
    bits |= (static_cast<uint32_t>(code(row, col)) >> kFirst & kMask) << shift;
    bits |= (static_cast<uint32_t>(code(row, col + 1)) >> kFirst & kMask) << (16 + shift);
  }
  return bits;
}

/// A word of the quants plane of mxfp4.
template <class Code>
__host__ __device__ inline uint32_t e2m1_word(const Code& code, int word) {
  const int lane = word / 4 % 32;
  const int low_word = word / 128 * 4 + word % 4;
  const int row = lane / 4 + 8 * (low_word % 2);
  uint32_t bits = 0;
  for (int pair = 0; pair < 4; ++pair) {
    const E2m1Bits place = e2m1_bits(pair);
    for (int second = 0; second < 2; ++second) {
      const int col = 32 * (low_word / 2) + pair_column(lane % 4, pair) + second;
      const auto number = static_cast<uint32_t>(code(row, col));
      bits |= ((number >> 3 & 1) << place.sign | (number & 7) << place.magnitude) << (16 * second);
    }
  }
  return bits;
}

/// Word i of the planes before the scales.
template <DType type, class Block>
__host__ __device__ inline uint32_t code_word(const Source<type, Block>& source, int i) {
  using T = Tile<type>;
  if constexpr (T::kHasBytes) {
    return byte_word(source, i);
  } else if constexpr (type == DType::mxfp4) {
    return e2m1_word(source, i);
  } else {
    if constexpr (T::kHighBits > 0) {
      if (i >= T::kHighAt / 4) return plane_word<T::kHighBits, T::kLowBits>(source, i - T::kHighAt / 4);
    }
    return plane_word<T::kLowBits, 0>(source, i);
  }
}

/// One of the two halves of each block, for the blocks of rows g and g + 8 in lane 4 g + t.
template <class Block, DType type>
__host__ __device__ inline uint2 lane_halves(const Source<type, Block>& source, int lane,
                                             uint16_t Block::*half) {
  const auto bits = [&](int row, int group) -> uint32_t {
    const Block* b = source.block(row, 32 * group);
    return b == nullptr ? 0 : b->*half;
  };
  const int g = lane / 4;
  const int group = 2 * (lane % 4);
  return {bits(g, group) | bits(g, group + 1) << 16, bits(g + 8, group) | bits(g + 8, group + 1) << 16};
}

/// The scale bytes of a lane of mxfp4.
__host__ __device__ inline uint32_t exponents(const Source<DType::mxfp4, BlockMxfp4>& source, int lane) {
  const auto pair = [&](int row) -> uint32_t {
    const BlockMxfp4* first = source.block(row, 64 * (lane % 4));
    const BlockMxfp4* second = source.block(row, 64 * (lane % 4) + 32);
    return (first == nullptr ? 0u : first->e) | (second == nullptr ? 0u : second->e) << 8;
  };
  return pair(lane / 4) | pair(lane / 4 + 8) << 16;
}

template <DType type, class Block>
__host__ __device__ inline uint2 byte_scales(const Source<type, Block>& source, int lane) {
  const auto word = [&](int row) -> uint32_t {
    const Block* b = source.block(row, 0);
    if (b == nullptr) return 0;
    const auto byte = [&](int j) -> uint32_t {
      if constexpr (type == DType::q2_k) {
        return two_scales(*b, j);
      } else {
        return scale_byte(*b, j) & 255;
      }
    };
    const int j = 2 * (lane % 4);
    return byte(j) | byte(j + 1) << 8 | byte(j + 8) << 16 | byte(j + 9) << 24;
  };
  return {word(lane / 4), word(lane / 4 + 8)};
}

template <DType type, class Block>
__host__ __device__ inline uint2 packed_minima(const Source<type, Block>& source, int lane) {
  const int t = lane % 4;
  unsigned long long bits = 0;
  for (int upper = 0; upper < 2; ++upper) {
    const Block* b = source.block(lane / 4 + 8 * upper, 0);
    if (b == nullptr) continue;
    const ScaleMin first = scale_min(b->scales, 2 * t);
    const ScaleMin second = scale_min(b->scales, 2 * t + 1);
    bits |=
        static_cast<unsigned long long>(first.scale | second.scale << 6 | first.min << 12 | second.min << 18)
        << (24 * upper);
    if (t / 2 == upper) bits |= static_cast<unsigned long long>(t % 2 == 0 ? b->d : b->dmin) << 48;
  }
  return {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
}

/// Writes a lane's part of SplitScales.
template <DType type, class Block>
__host__ __device__ inline void store_split_scales(const Source<type, Block>& source, int lane,
                                                   uint8_t* tile) {
  using S = SplitScales<type>;
  uint32_t low = 0, high = 0;
  for (int i = 0; i < 2 * S::kOfRow; ++i) {
    const Block* b = source.block(lane / 4 + 8 * (i / S::kOfRow), 0);
    const int j = i % S::kOfRow;
    const auto scale =
        static_cast<uint32_t>(b == nullptr ? 0 : six_bit_scale(*b, 2 * (lane % 4) + j / 2 * 8 + j % 2));
    low |= (scale & 15) << (4 * i);
    high |= scale >> 4 << (2 * i);
  }
  reinterpret_cast<typename S::Low*>(tile + S::kLowAt)[lane] = static_cast<typename S::Low>(low);
  reinterpret_cast<typename S::High*>(tile + S::kHighAt)[lane] = static_cast<typename S::High>(high);
}

/// Writes a lane's part of a tile's scales, and of the planes behind them.
template <DType type, class Block>
__host__ __device__ inline void store_lane_scales(const Source<type, Block>& source, int lane,
                                                  uint8_t* tile) {
  using T = Tile<type>;
  auto* scales = reinterpret_cast<uint2*>(tile + T::kScalesAt);
  auto* d = reinterpret_cast<uint16_t*>(tile + T::kScaleAt);
  if constexpr (type == DType::mxfp4) {
    reinterpret_cast<uint32_t*>(tile + T::kScalesAt)[lane] = exponents(source, lane);
  } else if constexpr (T::kPacksMinima) {
    scales[lane] = packed_minima(source, lane);
  } else if constexpr (T::kHasHalfMinima) {
    scales[2 * lane] = lane_halves(source, lane, &Block::d);
    scales[2 * lane + 1] = lane_halves(source, lane, &Block::m);
  } else if constexpr (type == DType::q2_k) {
    scales[lane] = byte_scales(source, lane);
    const Block* b = source.block(lane / 4 + 8 * (lane % 2), 0);
    d[lane] = b == nullptr ? 0 : lane / 2 % 2 == 0 ? d_bits(*b) : dmin_bits(*b);
  } else if constexpr (T::kSplitsScales || type == DType::q6_k) {
    if constexpr (T::kSplitsScales) {
      store_split_scales(source, lane, tile);
    } else {
      scales[lane] = byte_scales(source, lane);
    }
    if constexpr (type == DType::lut4) {
      if (lane < 8) reinterpret_cast<uint32_t*>(tile + T::kTableAt)[lane] = lut4_word<Block>(lane);
    }
    if (lane >= 16) return;
    const Block* b = source.block(lane / 2 + 8 * (lane % 2), 0);
    d[lane] = b == nullptr ? 0 : d_bits(*b);
  } else {
    scales[lane] = lane_halves(source, lane, &Block::d);
  }
}

}  // namespace minfer::cuda
