#include <algorithm>

#include "kernels/cuda/comm/reduction.cuh"

/// x = sum over ranks of part, in their order (+ x), then normed = rms_norm(x): for many rows, by plain stores
/// of 16 bytes into the receivers' memory and a flag for every chunk of rows.
///
///   part    [rows, cols] f32 or bf16        x       [rows, cols] f32
///   data    [ranks, rows, pieces, vectors] 16 bytes, in each rank's block: the rows sent to it, by sender
///   flags   [ranks, chunks] u32, beside it: the number of the call, once the chunk has come
///
/// One shot (all_reduce_chunks): the first blocks send every row of the part to every other rank, chunk by chunk. The other blocks end
/// rows, each when the flags of its chunk have come from all ranks. That includes its own rank: `part` may be x, so a row must not be
/// written before it has been sent. Over the link (ranks - 1) * rows * cols * sizeof part from each rank, the minimum for two ranks.
///
/// Two shots (all_reduce_two_shot): rank c % ranks sums chunk c. The first blocks send each chunk to that rank alone.
/// The next blocks add up their rank's chunks once all parts have come, round the sums to the type of the part and
/// send them to all. The other blocks end rows with the sums. A sum lies in the place of the receiver's own part,
/// since no rank sends itself one. Over the link 2 * (ranks - 1) / ranks * rows * cols * sizeof part from each rank.
///
/// All blocks fit on the device at a time. Senders wait for no block, adders wait for senders, and blocks that end
/// rows wait for either: so none waits for ever. One thread stores a chunk's flag behind a barrier of its block
/// and a fence.sys; one thread reads it by ld.acquire.sys in front of a barrier. The data are read past the L1.
///
/// Memory and flags of even and odd calls alternate. A rank is in call k + 2 only after its call k + 1 has ended. For that, each of its
/// chunks had data of call k + 1 from every other rank, sent there or to the rank that added them up; so all ranks had ended call k.
namespace minfer::cuda {
namespace {

constexpr int kMaxThreads = 512;
/// Limits registers to 64: two blocks of the most threads on a multiprocessor.
constexpr int kBlocksPerSm = 2;
/// Enough to fill the link: 64 blocks with a chunk of 32 KiB each in flight are 2 MiB, more than 450 GB/s for the 3 us of a fence.
constexpr int32_t kSenders = 64;
constexpr int32_t kAdders = 48;
constexpr int64_t kChunkBytes = int64_t{32} << 10;
/// Vectors that a thread has in flight.
constexpr int kUnroll = 4;

template <class T>
struct ChunkRows {
  const T* part;
  int64_t part_stride;
  int32_t rows;
  int32_t cols;
  int32_t chunk_rows;
  int32_t chunks;
  int32_t senders;  ///< blocks
  int32_t adders;   ///< blocks
  int64_t data_offset;
  int64_t data_bytes_per_rank;
  int64_t flags_offset;

  __device__ int32_t vectors() const { return (cols + kVectorElements - 1) / kVectorElements; }
};

template <class T>
constexpr int kPieces = Packed<T>::kWords / 4;

/// The rows from `from` in the memory of `to`.
template <class T>
__device__ __forceinline__ uint4* data_of(const Channel& channel, const ChunkRows<T>& rows, int parity,
                                          int to, int from) {
  return part_of<uint4>(channel, to,
                        rows.data_offset + (parity * channel.ranks + from) * rows.data_bytes_per_rank);
}
/// The flags of `from` in the memory of `to`.
template <class T>
__device__ __forceinline__ uint32_t* flags_of(const Channel& channel, const ChunkRows<T>& rows, int parity,
                                              int to, int from) {
  return part_of<uint32_t>(channel, to, rows.flags_offset) + (parity * channel.ranks + from) * kMostChunks;
}

/// The place of piece 0 of a vector in `data`; the next piece is `vectors` further on.
template <class T>
__device__ __forceinline__ int64_t place_of(int64_t row, int32_t vector, int32_t vectors) {
  return row * kPieces<T> * vectors + vector;
}

template <class T>
__device__ __forceinline__ void store_sent(uint4* to, int32_t vectors, const Packed<T>& packed) {
#pragma unroll
  for (int piece = 0; piece < kPieces<T>; ++piece) {
    const uint32_t* words = packed.words + 4 * piece;
    to[piece * vectors] = make_uint4(words[0], words[1], words[2], words[3]);
  }
}
template <class T>
__device__ __forceinline__ Packed<T> load_sent(const uint4* from, int32_t vectors) {
  Packed<T> packed;
#pragma unroll
  for (int piece = 0; piece < kPieces<T>; ++piece) {
    const uint4 words = __ldcg(from + piece * vectors);
    packed.words[4 * piece] = words.x;
    packed.words[4 * piece + 1] = words.y;
    packed.words[4 * piece + 2] = words.z;
    packed.words[4 * piece + 3] = words.w;
  }
  return packed;
}

template <class T, bool kAligned>
__device__ __forceinline__ Packed<T> own_at(const ChunkRows<T>& rows, int64_t row, int32_t vector) {
  return load_part<kAligned>(rows.part, rows.part_stride, rows.cols, row, vector);
}

/// Raises the flags flag_at(i), for i below `count`, after the block has stored all of a chunk that it sends.
template <class FlagAt>
__device__ __forceinline__ void raise_flags(uint32_t epoch, int count, FlagAt flag_at) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  for (int i = 0; i < count; ++i)
    store_relaxed(flag_at(i), epoch);
}

/// Handles the vectors of a chunk's rows, kUnroll a thread at a time: `load(row, vector)` for each, then `store(row, vector, loaded)`.
template <class T, class Load, class Store>
__device__ __forceinline__ void for_chunk(const ChunkRows<T>& rows, int32_t chunk, Load load, Store store) {
  const int32_t vectors = rows.vectors();
  const int32_t first_row = chunk * rows.chunk_rows;
  const int32_t behind = min(first_row + rows.chunk_rows, rows.rows);
  int32_t row = first_row + static_cast<int32_t>(threadIdx.x) / vectors;
  int32_t vector = static_cast<int32_t>(threadIdx.x) % vectors;
  while (row < behind) {
    Packed<T> packed[kUnroll];
    int32_t rows_at[kUnroll], vectors_at[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      rows_at[i] = row;
      vectors_at[i] = vector;
      if (row < behind) packed[i] = load(row, vector);
      vector += static_cast<int32_t>(blockDim.x);
      for (; vector >= vectors; vector -= vectors)
        ++row;
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (rows_at[i] < behind) store(rows_at[i], vectors_at[i], packed[i]);
    }
  }
}

/// Sends the chunks of the part to all other ranks, or (kTwoShot) each chunk to the rank that adds it up.
template <class T, bool kAligned, bool kTwoShot>
__device__ __forceinline__ void send_part(const Channel& channel, const ExchangeCall& call,
                                          const ChunkRows<T>& rows, int32_t sender) {
  const int32_t vectors = rows.vectors();
  const int parity = call.parity();
  for (int32_t chunk = sender; chunk < rows.chunks; chunk += rows.senders) {
    const int adder = chunk % channel.ranks;
    if (kTwoShot && adder == channel.rank) continue;
    for_chunk(
        rows, chunk, [&](int32_t row, int32_t vector) { return own_at<T, kAligned>(rows, row, vector); },
        [&](int32_t row, int32_t vector, const Packed<T>& packed) {
          const int64_t place = place_of<T>(row, vector, vectors);
          if constexpr (kTwoShot) {
            store_sent(data_of(channel, rows, parity, adder, channel.rank) + place, vectors, packed);
          } else {
            for (int distance = 1; distance < channel.ranks; ++distance) {
              const int to = (channel.rank + distance) % channel.ranks;
              store_sent(data_of(channel, rows, parity, to, channel.rank) + place, vectors, packed);
            }
          }
        });
    raise_flags(call.epoch(), kTwoShot ? 1 : channel.ranks, [&](int i) {
      return flags_of(channel, rows, parity, kTwoShot ? adder : i, channel.rank) + chunk;
    });
  }
}

/// The sum of a vector over all ranks; the others' vectors as they were sent here.
template <class T, bool kAligned>
__device__ __forceinline__ Vector8 sum_of_sent(const Channel& channel, int parity, const ChunkRows<T>& rows,
                                               int64_t row, int32_t vector) {
  const int32_t vectors = rows.vectors();
  Vector8 sum{};
  for (int rank = 0; rank < channel.ranks; ++rank) {
    const Vector8 values = rank == channel.rank
                               ? values_of(own_at<T, kAligned>(rows, row, vector))
                               : values_of(load_sent<T>(data_of(channel, rows, parity, channel.rank, rank) +
                                                            place_of<T>(row, vector, vectors),
                                                        vectors));
    if (rank == 0) {
      sum = values;
    } else {
      add(sum, values);
    }
  }
  return sum;
}

/// Adds up the chunks of this rank and sends the sums to all.
template <class T, bool kAligned>
__device__ __forceinline__ void send_sums(const Channel& channel, ExchangeCall& call,
                                          const ChunkRows<T>& rows, int32_t adder) {
  const int32_t vectors = rows.vectors();
  const int parity = call.parity();
  for (int32_t chunk = channel.rank + adder * channel.ranks; chunk < rows.chunks;
       chunk += rows.adders * channel.ranks) {
    const auto rank = static_cast<int>(threadIdx.x);
    if (rank < channel.ranks && rank != channel.rank)
      call.wait_for_flag(flags_of(channel, rows, parity, channel.rank, rank) + chunk);
    __syncthreads();
    for_chunk(
        rows, chunk,
        [&](int32_t row, int32_t vector) {
          return packed_of<T>(sum_of_sent<T, kAligned>(channel, parity, rows, row, vector));
        },
        [&](int32_t row, int32_t vector, const Packed<T>& packed) {
          const int64_t place = place_of<T>(row, vector, vectors);
          for (int distance = 1; distance <= channel.ranks; ++distance) {
            const int to = (channel.rank + distance) % channel.ranks;
            store_sent(data_of(channel, rows, parity, to, to) + place, vectors, packed);
          }
        });
    raise_flags(call.epoch(), channel.ranks,
                [&](int to) { return flags_of(channel, rows, parity, to, to) + chunk; });
  }
}

template <class T, class Normed, bool kAligned, bool kTwoShot>
__global__ void __launch_bounds__(kMaxThreads, kBlocksPerSm)
    all_reduce_chunks_kernel(const __grid_constant__ ChunkRows<T> rows,
                             const __grid_constant__ RowEnd<Normed> end,
                             const __grid_constant__ Channel channel, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  const Vector8 first_norm = begin_row_kernel<kAligned>(end, stamps);

  ExchangeCall call(channel);
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int32_t first_ender = rows.senders + rows.adders;
  if (block < rows.senders) {
    send_part<T, kAligned, kTwoShot>(channel, call, rows, block);
  } else if (kTwoShot && block < first_ender) {
    send_sums<T, kAligned>(channel, call, rows, block - rows.senders);
  } else {
    const int32_t vectors = rows.vectors();
    const int parity = call.parity();
    const auto step = static_cast<int32_t>(gridDim.x) - first_ender;
    for (int32_t row = block - first_ender; row < rows.rows; row += step) {
      const auto rank = static_cast<int>(threadIdx.x);
      if (kTwoShot ? rank == channel.rank : rank < channel.ranks)
        call.wait_for_flag(flags_of(channel, rows, parity, channel.rank, rank) + row / rows.chunk_rows);
      __syncthreads();
      end_row<kAligned>(end, row, first_norm, [&](int32_t vector) {
        if constexpr (kTwoShot) {
          return values_of(load_sent<T>(
              data_of(channel, rows, parity, channel.rank, channel.rank) + place_of<T>(row, vector, vectors),
              vectors));
        } else {
          return sum_of_sent<T, kAligned>(channel, parity, rows, row, vector);
        }
      });
    }
  }
  call.end();
}

/// The same on all ranks, for any devices.
int64_t rows_of_chunk(int64_t rows, int64_t row_bytes) {
  return std::clamp<int64_t>(rows / kSenders, 1, std::max<int64_t>(1, kChunkBytes / row_bytes));
}

template <bool kTwoShot>
void launch_chunks(Launch& launch, const Reduction& r) {
  const AllReduceArgs& args = r.args;
  for_types(args, [&]<class T, class Normed, bool kAligned>() {
    const int64_t row_bytes = padded_row_bytes(args.part.cols, sizeof(T));
    const int64_t chunk_rows = rows_of_chunk(args.part.rows, row_bytes);
    const int64_t chunks = (args.part.rows + chunk_rows - 1) / chunk_rows;
    if (args.part.rows * row_bytes > r.layout.data_bytes_per_rank)
      require_equal("all_reduce: bytes at most", r.layout.data_bytes_per_rank, args.part.rows * row_bytes);
    if (chunks > kMostChunks) require_equal("all_reduce: chunks at most", kMostChunks, chunks);
    const uint32_t threads = threads_of_rows(args.part.cols, kMaxThreads);
    const int64_t fitting = resident_blocks(launch.num_sms(), kBlocksPerSm * kMaxThreads, threads);
    const int64_t senders = std::min({int64_t{kSenders}, chunks, std::max<int64_t>(1, fitting / 4)});
    const int64_t adders =
        kTwoShot ? std::min({int64_t{kAdders}, chunks, std::max<int64_t>(1, fitting / 4)}) : 0;
    const int64_t enders = std::min(args.part.rows, fitting - senders - adders);
    if (enders < 1) require_equal("all_reduce: blocks on the device at least", senders + adders + 1, fitting);
    const ChunkRows<T> rows{.part = static_cast<const T*>(args.part.data),
                            .part_stride = args.part.stride,
                            .rows = static_cast<int32_t>(args.part.rows),
                            .cols = static_cast<int32_t>(args.part.cols),
                            .chunk_rows = static_cast<int32_t>(chunk_rows),
                            .chunks = static_cast<int32_t>(chunks),
                            .senders = static_cast<int32_t>(senders),
                            .adders = static_cast<int32_t>(adders),
                            .data_offset = r.layout.data,
                            .data_bytes_per_rank = r.layout.data_bytes_per_rank,
                            .flags_offset = r.layout.flags};
    launch(kTwoShot ? "all_reduce_two_shot" : "all_reduce_chunks",
           all_reduce_chunks_kernel<T, Normed, kAligned, kTwoShot>,
           dim3(static_cast<uint32_t>(senders + adders + enders)), dim3(threads), 0, rows,
           row_end_of<Normed>(args, r.arrived), r.channel);
  });
}

}  // namespace

void all_reduce_chunks(Launch& launch, const Reduction& reduction) {
  launch_chunks<false>(launch, reduction);
}

void all_reduce_two_shot(Launch& launch, const Reduction& reduction) {
  launch_chunks<true>(launch, reduction);
}

}  // namespace minfer::cuda
