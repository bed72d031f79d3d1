#include <algorithm>
#include <type_traits>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/weights/quant_tile.cuh"
#include "kernels/cuda/weights/raw_blocks.cuh"
#include "kernels/cuda/weights/store_rows.cuh"
#include "kernels/cuda/weights/weights.h"

// Weights into their device layout, at load.
//
// raw [rows, cols] blocks of a file -> tiles (quant_tile.cuh), one thread block a tile; each thread assembles
// whole 32-bit words from the elements that they hold. Rows and columns beyond the matrix become zeros.
// The types without a tile become bf16, four elements a thread. Plain types are copied, or become fp8 (store_fp8.cu).
namespace minfer::cuda {
namespace {

/// One tile's source: element access with zeros outside of the matrix.
template <class Block>
struct Source {
  static constexpr int kBlockCols = std::is_same_v<Block, BlockQ4_0> || std::is_same_v<Block, BlockQ8_0> ||
                                            std::is_same_v<Block, BlockQ5_0> ||
                                            std::is_same_v<Block, BlockIq4Nl> ||
                                            std::is_same_v<Block, BlockMxfp4>
                                        ? kSmallBlock
                                        : kSuperBlock;

  const Rows& rows;
  int64_t first_row;
  int64_t first_col;

  /// The block that holds element (row, col) of the tile, or null.
  __device__ const Block* block(int row, int col) const {
    const int64_t r = first_row + row;
    const int64_t c = first_col + col;
    if (r >= rows.end_row || c >= rows.cols) return nullptr;
    return reinterpret_cast<const Block*>(rows.raw + (r - rows.first_row) * rows.row_bytes) + c / kBlockCols;
  }
  __device__ int operator()(int row, int col) const {
    const Block* b = block(row, col);
    return b == nullptr ? 0 : code(*b, col % kBlockCols);
  }
};

/// A word of the quants plane of a 4-bit type: the low nibbles of its pairs.
template <class Block>
__device__ uint32_t low_word(const Source<Block>& source, int word) {
  const int lane = word / 4 % 32;
  const int row = lane / 4 + 8 * (word % 2);
  const int group = 2 * (word / 128) + word % 4 / 2;
  uint32_t bits = 0;
  for (int pair = 0; pair < 4; ++pair) {
    const int col = 32 * group + pair_column(lane % 4, pair);
    bits |= (source(row, col) & 15) << (4 * pair) | (source(row, col + 1) & 15) << (16 + 4 * pair);
  }
  return bits;
}

/// A word of the high-bits plane: bits 4 and up of the codes of 16 / kBits pairs.
template <int kBits, class Block>
__device__ uint32_t high_word(const Source<Block>& source, int word) {
  constexpr int kPairs = 16 / kBits;
  const int lane = word / 4 % 32;
  const int first_word = (word / 128 * 4 + word % 4) * (kPairs / 4);  // of the lane's sixteen low words
  uint32_t bits = 0;
  for (int i = 0; i < kPairs; ++i) {
    const int w = first_word + i / 4;
    const int row = lane / 4 + 8 * (w % 2);
    const int col = 32 * (w / 2) + pair_column(lane % 4, i % 4);
    bits |= (source(row, col) >> 4) << (kBits * i) | (source(row, col + 1) >> 4) << (16 + kBits * i);
  }
  return bits;
}

/// The two scale words of a lane.
template <class Block>
__device__ uint2 half_scales(const Source<Block>& source, int lane) {
  const auto d = [&](int row, int group) -> uint32_t {
    const Block* b = source.block(row, 32 * group);
    return b == nullptr ? 0 : b->d;
  };
  const int g = lane / 4;
  const int group = 2 * (lane % 4);
  return {d(g, group) | d(g, group + 1) << 16, d(g + 8, group) | d(g + 8, group + 1) << 16};
}

/// The scale bytes of a lane of mxfp4.
__device__ uint32_t exponents(const Source<BlockMxfp4>& source, int lane) {
  const auto pair = [&](int row) -> uint32_t {
    const BlockMxfp4* first = source.block(row, 64 * (lane % 4));
    const BlockMxfp4* second = source.block(row, 64 * (lane % 4) + 32);
    return (first == nullptr ? 0u : first->e) | (second == nullptr ? 0u : second->e) << 8;
  };
  return pair(lane / 4) | pair(lane / 4 + 8) << 16;
}

template <class Block>
__device__ uint2 byte_scales(const Source<Block>& source, int lane) {
  const auto word = [&](int row) -> uint32_t {
    const Block* b = source.block(row, 0);
    if (b == nullptr) return 0;
    const int j = 2 * (lane % 4);
    return (sub_scale(*b, j) & 255) | (sub_scale(*b, j + 1) & 255) << 8 | (sub_scale(*b, j + 8) & 255) << 16 |
           (sub_scale(*b, j + 9) & 255) << 24;
  };
  return {word(lane / 4), word(lane / 4 + 8)};
}

template <class Block>
__device__ uint2 six_bit_scales(const Source<Block>& source, int lane) {
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

/// grid: (tiles of a row, panels).
template <DType type, class Block>
__global__ void store_tiles(Rows rows) {
  using T = Tile<type>;
  const int64_t panel = rows.first_row / kPanelRows + blockIdx.y;
  const Source<Block> source{rows, panel * kPanelRows, static_cast<int64_t>(blockIdx.x) * kTileCols};
  uint8_t* tile = rows.matrix + (panel * gridDim.x + blockIdx.x) * T::kBytes;
  auto* words = reinterpret_cast<uint32_t*>(tile);
  for (int i = threadIdx.x; i < T::kScalesAt / 4; i += kStoreThreads) {
    if constexpr (type == DType::q8_0) {
      words[i] = byte_word(source, i);
    } else if (i < T::kHighAt / 4) {
      words[i] = low_word(source, i);
    } else if constexpr (T::kHighBits > 0) {
      words[i] = high_word<T::kHighBits>(source, i - T::kHighAt / 4);
    }
  }
  const int lane = threadIdx.x;
  if (lane >= 32) return;
  auto* scales = reinterpret_cast<uint2*>(tile + T::kScalesAt);
  if constexpr (type == DType::mxfp4) {
    words[T::kScalesAt / 4 + lane] = exponents(source, lane);
  } else if constexpr (T::kHasMinima) {
    scales[lane] = six_bit_scales(source, lane);
  } else if constexpr (type == DType::q6_k) {
    scales[lane] = byte_scales(source, lane);
    if (lane < 16) {
      const Block* b = source.block(lane / 2 + 8 * (lane % 2), 0);
      reinterpret_cast<uint16_t*>(tile + T::kScaleAt)[lane] = b == nullptr ? 0 : b->d;
    }
  } else {
    scales[lane] = half_scales(source, lane);
  }
}

template <DType type, class Block>
void launch_tiles(cudaStream_t stream, const Rows& rows) {
  store_tiles<type, Block><<<tile_grid(rows), kStoreThreads, 0, stream>>>(rows);
  check(cudaGetLastError(), "launch of store_tiles");
}

/// Four elements a thread; rows lie without gaps on both sides.
template <class Block, int kBlockCols>
__global__ void store_bf16(const Block* raw, int64_t quads, __nv_bfloat16* out) {
  const int64_t quad = static_cast<int64_t>(blockIdx.x) * kStoreThreads + threadIdx.x;
  if (quad >= quads) return;
  const int64_t first = quad * 4;
  for (int i = 0; i < 4; ++i) {
    out[first + i] =
        from_f32<__nv_bfloat16>(value(raw[first / kBlockCols], static_cast<int>(first % kBlockCols) + i));
  }
}

template <class Block, int kBlockCols>
void launch_bf16(cudaStream_t stream, const Rows& rows) {
  const int64_t quads = (rows.end_row - rows.first_row) * rows.cols / 4;
  auto* out = reinterpret_cast<__nv_bfloat16*>(rows.matrix) + rows.first_row * rows.cols;
  store_bf16<Block, kBlockCols>
      <<<static_cast<unsigned>((quads + kStoreThreads - 1) / kStoreThreads), kStoreThreads, 0, stream>>>(
          reinterpret_cast<const Block*>(rows.raw), quads, out);
  check(cudaGetLastError(), "launch of store_bf16");
}

void store(cudaStream_t stream, const HostTensor& tensor, const Rows& rows) {
  if (tensor.quantise_to == DType::fp8) return store_fp8(stream, tensor.dtype, rows);
  if (tensor.quantise_to) unsupported("weights quantised at load", "fp8", name(*tensor.quantise_to));
  switch (tensor.dtype) {
    case DType::q4_0:
      return launch_tiles<DType::q4_0, BlockQ4_0>(stream, rows);
    case DType::q8_0:
      return launch_tiles<DType::q8_0, BlockQ8_0>(stream, rows);
    case DType::q5_0:
      return launch_tiles<DType::q8_0, BlockQ5_0>(stream, rows);
    case DType::iq4_nl:
      return launch_tiles<DType::q8_0, BlockIq4Nl>(stream, rows);
    case DType::mxfp4:
      return launch_tiles<DType::mxfp4, BlockMxfp4>(stream, rows);
    case DType::q4_k:
      return launch_tiles<DType::q4_k, BlockQ4K>(stream, rows);
    case DType::q5_k:
      return launch_tiles<DType::q5_k, BlockQ5K>(stream, rows);
    case DType::q6_k:
      return launch_tiles<DType::q6_k, BlockQ6K>(stream, rows);
    case DType::q3_k:
      return launch_tiles<DType::q6_k, BlockQ3K>(stream, rows);
    case DType::q4_1:
      return launch_bf16<BlockQ4_1, kSmallBlock>(stream, rows);
    case DType::q5_1:
      return launch_bf16<BlockQ5_1, kSmallBlock>(stream, rows);
    case DType::q2_k:
      return launch_bf16<BlockQ2K, kSuperBlock>(stream, rows);
    case DType::iq4_xs:
      return launch_bf16<BlockIq4Xs, kSuperBlock>(stream, rows);
    default:
      check(cudaMemcpyAsync(rows.matrix + rows.first_row * rows.row_bytes, rows.raw,
                            static_cast<size_t>((rows.end_row - rows.first_row) * rows.row_bytes),
                            cudaMemcpyDeviceToDevice, stream),
            "copy of a weight");
  }
}

}  // namespace

void store_rows(cudaStream_t stream, const HostTensor& tensor, int64_t first_row, int64_t num_rows,
                const void* raw, void* data) {
  const int64_t stride = matrix_stride_bytes(device_dtype(tensor), tensor.rows, tensor.cols);
  const auto bytes_of_row = static_cast<int64_t>(row_bytes(tensor.dtype, tensor.cols));
  const auto* source = static_cast<const uint8_t*>(raw);
  const int64_t granularity = row_granularity(tensor);
  const int64_t end = first_row + num_rows;
  while (first_row < end) {
    const int64_t matrix = first_row / tensor.rows;
    const int64_t begin_in_matrix = first_row - matrix * tensor.rows;
    const int64_t end_in_matrix = std::min(tensor.rows, end - matrix * tensor.rows);
    require_equal("store_rows: first row modulo the granularity", 0, begin_in_matrix % granularity);
    if (end_in_matrix < tensor.rows) {
      require_equal("store_rows: end row modulo the granularity", 0, end_in_matrix % granularity);
    }
    store(stream, tensor,
          {source, bytes_of_row, begin_in_matrix, end_in_matrix, tensor.cols,
           static_cast<uint8_t*>(data) + matrix * stride});
    source += (end_in_matrix - begin_in_matrix) * bytes_of_row;
    first_row += end_in_matrix - begin_in_matrix;
  }
}

}  // namespace minfer::cuda
