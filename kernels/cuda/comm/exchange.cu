#include "kernels/cuda/comm/exchange.h"
#include "kernels/cuda/comm/peer_memory.cuh"

/// Brings the others' logits to the first rank, and the tokens that it draws to the others.
///
/// gather_columns: part [rows, cols] f32 of each rank -> out [rows, ranks * cols] f32 of the first rank. The first rank tells
/// every other rank where its columns go, in lines with the number of the call. It gives the distance from its block, since other
/// processes have the block at another address. It copies its own columns itself. The others wait for that, store their columns
/// there and raise a flag for each block, for which the first rank's kernel waits before it ends. So `out` is written only after
/// everything in front of the call has ended on the first rank, including sampling from the logits before. A part may be written
/// again after the call has ended on its own rank. Over the link: 4 * rows * cols bytes from each rank. Lines and flags exist
/// once: the first rank ends a call after all blocks of the others have read its lines, and the next call's lines come after that.
///
/// Between processes `out` is in the first rank's block, and copy_rows() copies it to its final place: 8 * rows * ranks * cols bytes more.
///
/// share_tokens: tokens [rows] i32. The first rank stores each token with the number of the call, in a word of 8 bytes, in
/// every other rank's memory; the others poll for it. Nothing goes back. The all-reduces of a step keep the first rank from
/// being two calls ahead: they end only after all ranks have ended the step before. Memory of even and odd calls alternates.
namespace minfer::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kTokenThreads = 256;

struct Columns {
  const float* part;
  int64_t part_stride;
  int32_t rows;
  int32_t cols;
};

__device__ __forceinline__ bool allows_vectors(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}

/// All blocks of the grid copy the part to `to`, with rows `to_stride` elements apart. A thread has kInFlight accesses in flight.
template <class Access>
__device__ __forceinline__ void copy_columns_by(const Columns& columns, float* to, int64_t to_stride) {
  constexpr int kInFlight = 4;
  constexpr int kElements = sizeof(Access) / sizeof(float);
  const int32_t of_row = columns.cols / kElements;
  const int64_t all = int64_t{columns.rows} * of_row;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; first < all;
       first += kInFlight * step) {
    Access values[kInFlight];
    float* places[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t access = first + i * step;
      const int64_t row = access / of_row, col = access % of_row * kElements;
      places[i] = access < all ? to + row * to_stride + col : nullptr;
      if (places[i] != nullptr)
        values[i] = *reinterpret_cast<const Access*>(columns.part + row * columns.part_stride + col);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (places[i] != nullptr) *reinterpret_cast<Access*>(places[i]) = values[i];
    }
  }
}

__device__ __forceinline__ void copy_columns(const Columns& columns, float* to, int64_t to_stride) {
  const bool vectors = columns.cols % 4 == 0 && allows_vectors(columns.part, columns.part_stride) &&
                       allows_vectors(to, to_stride);
  vectors ? copy_columns_by<float4>(columns, to, to_stride) : copy_columns_by<float>(columns, to, to_stride);
}

__device__ __forceinline__ void send_order(const Channel& channel, const BlockLayout& layout, int to,
                                           float* out, int64_t out_stride, uint32_t epoch) {
  FlaggedLine* order = part_of<FlaggedLine>(channel, to, layout.gather_order);
  const auto distance = reinterpret_cast<unsigned long long>(out) -
                        reinterpret_cast<unsigned long long>(channel.block[channel.rank]);
  const auto stride = static_cast<unsigned long long>(out_stride);
  store_line(order, static_cast<uint32_t>(distance), static_cast<uint32_t>(distance >> 32), epoch);
  store_line(order + 1, static_cast<uint32_t>(stride), static_cast<uint32_t>(stride >> 32), epoch);
}

__global__ void __launch_bounds__(kThreads)
    gather_first_kernel(Columns columns, float* out, int64_t out_stride,
                        const __grid_constant__ Channel channel, const __grid_constant__ BlockLayout layout,
                        Stamps stamps) {
  const EndStamp end_stamp(stamps);
  begin_kernel(stamps);
  allow_next_kernel();
  ExchangeCall call(channel);
  const auto thread = static_cast<int>(threadIdx.x);
  if (blockIdx.x == 0 && thread > 0 && thread < channel.ranks)
    send_order(channel, layout, thread, out, out_stride, call.epoch());
  copy_columns(columns, out, out_stride);
  if (blockIdx.x == 0) {
    const uint32_t* flags = part_of<uint32_t>(channel, 0, layout.gather_flags);
    for (int i = kGatherBlocks + thread; i < channel.ranks * kGatherBlocks; i += kThreads)
      call.wait_for_flag(flags + i);
  }
  call.end();
}

/// Reads an order, after it waits for both lines. Null if a rank has failed.
__device__ __forceinline__ float* ordered_place(const Channel& channel, const BlockLayout& layout,
                                                ExchangeCall& call, int64_t& stride) {
  const FlaggedLine* order = part_of<const FlaggedLine>(channel, channel.rank, layout.gather_order);
  unsigned long long values[2] = {};
  for (int i = 0; i < 2; ++i) {
    call.wait([&] {
      const FlaggedLine line = load_line(order + i);
      values[i] = static_cast<unsigned long long>(data_of(line.half[1])) << 32 | data_of(line.half[0]);
      return has_come(line, call.epoch());
    });
  }
  stride = static_cast<int64_t>(values[1]);
  if (call.is_aborted()) return nullptr;
  return reinterpret_cast<float*>(reinterpret_cast<unsigned long long>(channel.block[0]) + values[0]);
}

__global__ void __launch_bounds__(kThreads)
    gather_other_kernel(Columns columns, const __grid_constant__ Channel channel,
                        const __grid_constant__ BlockLayout layout, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  begin_kernel(stamps);
  allow_next_kernel();
  __shared__ float* out;
  __shared__ int64_t out_stride;
  ExchangeCall call(channel);
  if (threadIdx.x == 0) out = ordered_place(channel, layout, call, out_stride);
  __syncthreads();
  if (out != nullptr) {
    copy_columns(columns, out + int64_t{channel.rank} * columns.cols, out_stride);
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence_system();
      store_relaxed(
          part_of<uint32_t>(channel, 0, layout.gather_flags) + channel.rank * kGatherBlocks + blockIdx.x,
          call.epoch());
    }
  }
  call.end();
}

__global__ void __launch_bounds__(kThreads)
    copy_rows_kernel(Columns columns, float* to, int64_t to_stride, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  begin_kernel(stamps);
  allow_next_kernel();
  copy_columns(columns, to, to_stride);
}

/// Blocks (x: row, y: part of its columns).
__global__ void __launch_bounds__(kThreads)
    place_columns_kernel(Columns columns, const float* others, int32_t ranks, float* out, int64_t out_stride,
                         Stamps stamps) {
  const EndStamp end_stamp(stamps);
  begin_kernel(stamps);
  allow_next_kernel();
  const int64_t row = blockIdx.x;
  const int64_t all_cols = int64_t{ranks} * columns.cols;
  for (int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x; i < all_cols;
       i += int64_t{gridDim.y} * kThreads) {
    const int64_t rank = i / columns.cols, col = i % columns.cols;
    out[row * out_stride + i] = rank == 0 ? columns.part[row * columns.part_stride + col]
                                          : others[((rank - 1) * columns.rows + row) * columns.cols + col];
  }
}

__device__ __forceinline__ unsigned long long* token_words(const Channel& channel, const BlockLayout& layout,
                                                           int rank, int parity) {
  return part_of<unsigned long long>(channel, rank, layout.tokens) + parity * layout.tokens_per_call;
}

__global__ void __launch_bounds__(kTokenThreads)
    share_tokens_kernel(int32_t* tokens, int32_t rows, const __grid_constant__ Channel channel,
                        const __grid_constant__ BlockLayout layout, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  begin_kernel(stamps);
  allow_next_kernel();
  ExchangeCall call(channel);
  for (auto row = static_cast<int32_t>(threadIdx.x); row < rows; row += kTokenThreads) {
    if (channel.rank == 0) {
      const unsigned long long word = flagged(static_cast<uint32_t>(tokens[row]), call.epoch());
      for (int to = 1; to < channel.ranks; ++to)
        store_word(token_words(channel, layout, to, call.parity()) + row, word);
    } else {
      const unsigned long long* from = token_words(channel, layout, channel.rank, call.parity()) + row;
      unsigned long long word = 0;
      call.wait([&] {
        word = load_word(from);
        return epoch_of(word) == call.epoch();
      });
      tokens[row] = call.is_aborted() ? 0 : static_cast<int32_t>(data_of(word));
    }
  }
  call.end();
}

Columns columns_of(const Tensor& part) {
  return {part.f32(), part.stride, static_cast<int32_t>(part.rows), static_cast<int32_t>(part.cols)};
}

}  // namespace

void gather_columns(Launch& launch, const Channel& channel, const BlockLayout& layout, const Tensor& part,
                    const Tensor& out) {
  if (channel.rank == 0) {
    launch("gather_columns", gather_first_kernel, dim3(kGatherBlocks), dim3(kThreads), 0, columns_of(part),
           out.f32(), out.stride, channel, layout);
  } else {
    launch("gather_columns", gather_other_kernel, dim3(kGatherBlocks), dim3(kThreads), 0, columns_of(part),
           channel, layout);
  }
}

void copy_rows(Launch& launch, const Tensor& from, const Tensor& to) {
  constexpr unsigned kBlocksPerSm = 2;
  launch("copy_rows", copy_rows_kernel, dim3(kBlocksPerSm * static_cast<unsigned>(launch.num_sms())),
         dim3(kThreads), 0, columns_of(from), to.f32(), to.stride);
}

void place_columns(Launch& launch, const Tensor& part, const float* others, int32_t ranks,
                   const Tensor& out) {
  constexpr unsigned kBlocksOfRow = 32;
  launch("place_columns", place_columns_kernel, dim3(static_cast<unsigned>(part.rows), kBlocksOfRow),
         dim3(kThreads), 0, columns_of(part), others, ranks, out.f32(), out.stride);
}

void load_place_columns() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, place_columns_kernel), "loading a kernel");
}

void share_tokens(Launch& launch, const Channel& channel, const BlockLayout& layout, int32_t* tokens,
                  int32_t rows) {
  if (rows > layout.tokens_per_call)
    require_equal("share_tokens: rows at most", layout.tokens_per_call, rows);
  launch("share_tokens", share_tokens_kernel, dim3(1), dim3(kTokenThreads), 0, tokens, rows, channel, layout);
}

}  // namespace minfer::cuda
