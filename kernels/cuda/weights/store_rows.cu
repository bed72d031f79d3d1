#include <algorithm>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/ptx/element.cuh"
#include "kernels/cuda/weights/store_rows.cuh"
#include "kernels/cuda/weights/tile_words.cuh"
#include "kernels/cuda/weights/weights.h"

// Puts weights into their device layout at load.
//
// raw [rows, cols] blocks of a file -> tiles (quant_tile.cuh). A thread block takes a tile; each thread
// assembles whole 32-bit words from their elements. Rows and columns beyond the matrix become zeros. Types that
// the device does not keep (device_dtype.h) become tiles of other types, or bf16, four elements a thread. Plain
// types are copied, or become fp8 (store_fp8.cu).
namespace minfer::cuda {
namespace {

/// grid: (tiles of a row, strips).
template <DType type, class Block>
__global__ void store_tiles(Rows rows) {
  using T = Tile<type>;
  const int64_t strip = rows.first_row / kStripRows + blockIdx.y;
  const Source<type, Block> source{rows, strip * kStripRows, static_cast<int64_t>(blockIdx.x) * kTileCols};
  uint8_t* tile = rows.matrix + (strip * gridDim.x + blockIdx.x) * T::kBytes;
  for (int i = threadIdx.x; i < T::kScalesAt / 4; i += kStoreThreads)
    reinterpret_cast<uint32_t*>(tile)[i] = code_word(source, i);
  if (threadIdx.x < 32) store_lane_scales(source, static_cast<int>(threadIdx.x), tile);
}

template <DType type, class Block>
void launch_tiles(cudaStream_t stream, const Rows& rows) {
  store_tiles<type, Block><<<tile_grid(rows), kStoreThreads, 0, stream>>>(rows);
  check(cudaGetLastError(), "launch of store_tiles");
}

/// Four elements a thread; rows have no gaps on either side.
template <class Block>
__global__ void store_bf16(const Block* raw, int64_t quads, __nv_bfloat16* out) {
  const int64_t quad = static_cast<int64_t>(blockIdx.x) * kStoreThreads + threadIdx.x;
  if (quad >= quads) return;
  const int64_t first = quad * 4;
  for (int i = 0; i < 4; ++i) {
    out[first + i] = from_f32<__nv_bfloat16>(
        value(raw[first / kBlockCols<Block>], static_cast<int>(first % kBlockCols<Block>) + i));
  }
}

template <class Block>
void launch_bf16(cudaStream_t stream, const Rows& rows) {
  const int64_t quads = (rows.end_row - rows.first_row) * rows.cols / 4;
  auto* out = reinterpret_cast<__nv_bfloat16*>(rows.matrix) + rows.first_row * rows.cols;
  store_bf16<Block>
      <<<static_cast<unsigned>((quads + kStoreThreads - 1) / kStoreThreads), kStoreThreads, 0, stream>>>(
          reinterpret_cast<const Block*>(rows.raw), quads, out);
  check(cudaGetLastError(), "launch of store_bf16");
}

/// Stores tiles, or for experts the type that they are converted to.
template <DType type, class Block>
void launch_rare(cudaStream_t stream, const HostTensor& tensor, const Rows& rows) {
  if (device_dtype(tensor) == dense_dtype(type)) return launch_tiles<dense_dtype(type), Block>(stream, rows);
  if constexpr (expert_dtype(type) == DType::bf16) {
    launch_bf16<Block>(stream, rows);
  } else {
    launch_tiles<expert_dtype(type), Block>(stream, rows);
  }
}

void store(cudaStream_t stream, const HostTensor& tensor, const Rows& rows) {
  if (tensor.quantise_to == DType::fp8) return store_fp8(stream, tensor.dtype, rows);
  if (tensor.quantise_to) unsupported("weights quantised at load", "fp8", name(*tensor.quantise_to));
  switch (tensor.dtype) {
    case DType::q4_0:
      return launch_tiles<DType::q4_0, BlockQ4_0>(stream, rows);
    case DType::q8_0:
      return launch_tiles<DType::q8_0, BlockQ8_0>(stream, rows);
    case DType::q4_k:
      return launch_tiles<DType::q4_k, BlockQ4K>(stream, rows);
    case DType::q5_k:
      return launch_tiles<DType::q5_k, BlockQ5K>(stream, rows);
    case DType::q6_k:
      return launch_tiles<DType::q6_k, BlockQ6K>(stream, rows);
    case DType::mxfp4:
      return launch_tiles<DType::mxfp4, BlockMxfp4>(stream, rows);
    case DType::q4_1:
      return launch_rare<DType::q4_1, BlockQ4_1>(stream, tensor, rows);
    case DType::q5_0:
      return launch_rare<DType::q5_0, BlockQ5_0>(stream, tensor, rows);
    case DType::q5_1:
      return launch_rare<DType::q5_1, BlockQ5_1>(stream, tensor, rows);
    case DType::q2_k:
      return launch_rare<DType::q2_k, BlockQ2K>(stream, tensor, rows);
    case DType::q3_k:
      return launch_rare<DType::q3_k, BlockQ3K>(stream, tensor, rows);
    case DType::iq4_nl:
      return launch_rare<DType::iq4_nl, BlockIq4Nl>(stream, tensor, rows);
    case DType::iq4_xs:
      return launch_rare<DType::iq4_xs, BlockIq4Xs>(stream, tensor, rows);
    case DType::tq1_0:
      return launch_rare<DType::tq1_0, BlockTq1_0>(stream, tensor, rows);
    case DType::tq2_0:
      return launch_rare<DType::tq2_0, BlockTq2_0>(stream, tensor, rows);
    case DType::iq2_xxs:
      return launch_rare<DType::iq2_xxs, BlockIq2Xxs>(stream, tensor, rows);
    case DType::iq2_xs:
      return launch_rare<DType::iq2_xs, BlockIq2Xs>(stream, tensor, rows);
    case DType::iq2_s:
      return launch_rare<DType::iq2_s, BlockIq2S>(stream, tensor, rows);
    case DType::iq3_xxs:
      return launch_rare<DType::iq3_xxs, BlockIq3Xxs>(stream, tensor, rows);
    case DType::iq3_s:
      return launch_rare<DType::iq3_s, BlockIq3S>(stream, tensor, rows);
    case DType::iq1_s:
      return launch_rare<DType::iq1_s, BlockIq1S>(stream, tensor, rows);
    case DType::iq1_m:
      return launch_rare<DType::iq1_m, BlockIq1M>(stream, tensor, rows);
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
