#include <algorithm>

#include "kernels/cuda/comm/reduction.cuh"

/// x = sum over ranks of part, in their order (+ x), then normed = rms_norm(x): one shot, for few rows.
///
///   part    [rows, cols] f32 or bf16        x       [rows, cols] f32
///   lines   [ranks, rows, words / 2, vectors] FlaggedLine, in each rank's block: the lines sent to it
///
/// A block takes rows in turn. First it sends all its rows to every other rank, then it ends them one after the other: a
/// thread polls for the lines of its vector, adds the parts in the order of the ranks (its own from memory) and
/// continues as in row_end.cuh. So a row has the same bits in all ranks, alone and among others. No block waits for
/// another block of its own device, and all fit on the device at a time. So none waits for ever, in any order of starts.
///
/// Over the link: 2 * (ranks - 1) * rows * cols * sizeof part from each rank; two store instructions a thread of bf16.
///
/// Memory of even and odd calls alternates, and that is enough. A rank is in call k + 2 only after its call k + 1 has ended. For
/// that it had data of call k + 1 from every other rank, which sent it after its call k had ended and it had read all of call k.
namespace minfer::cuda {
namespace {

/// With two ranks 64 registers are enough.
constexpr int max_threads(int most_ranks) {
  return most_ranks == 2 ? 1024 : 512;
}

template <class T>
struct LineRows {
  const T* part;
  int64_t part_stride;
  int32_t rows;
  int64_t lines_offset;  ///< in the block
  int64_t lines_per_rank;
};

/// The lines of a row of sender `from`, in the memory of `to`.
template <class T>
__device__ __forceinline__ FlaggedLine* lines_of(const Channel& channel, const LineRows<T>& rows, int parity,
                                                 int to, int from, int64_t row, int32_t vectors) {
  constexpr int kLines = Packed<T>::kWords / 2;
  return part_of<FlaggedLine>(channel, to, rows.lines_offset) +
         (parity * channel.ranks + from) * rows.lines_per_rank + row * kLines * vectors;
}

/// Adds the elements of word `word` (4 bytes) to a vector, or sets them.
__device__ __forceinline__ void take_word(Vector8& sum, bool is_first, int word, uint32_t bits, float) {
  sum.at[word] = is_first ? __uint_as_float(bits) : sum.at[word] + __uint_as_float(bits);
}
__device__ __forceinline__ void take_word(Vector8& sum, bool is_first, int word, uint32_t bits,
                                          __nv_bfloat16) {
  const float low = __uint_as_float(bits << 16), high = __uint_as_float(bits & 0xffff0000u);
  sum.at[2 * word] = is_first ? low : sum.at[2 * word] + low;
  sum.at[2 * word + 1] = is_first ? high : sum.at[2 * word + 1] + high;
}

/// The sum of a vector over all ranks. Lines of one vector are `vectors` apart, so that a warp's accesses are
/// contiguous. Several lines are loaded before the first is waited for, as registers allow.
template <class T, int kMost>
__device__ __forceinline__ Vector8 sum_of_ranks(const Channel& channel, ExchangeCall& call,
                                                const LineRows<T>& rows, int64_t row, int32_t vector,
                                                int32_t vectors, const Packed<T>& own) {
  constexpr int kLines = Packed<T>::kWords / 2;
  constexpr int kTogether = kMost == 2 ? 2 : 1;
  const auto from = [&](int rank, int line) {
    return lines_of(channel, rows, call.parity(), channel.rank, rank, row, vectors) + line * vectors + vector;
  };
  Vector8 sum{};
#pragma unroll
  for (int first = 0; first < kLines; first += kTogether) {
    FlaggedLine lines[kTogether][kMost];
#pragma unroll
    for (int line = 0; line < kTogether; ++line) {
#pragma unroll
      for (int rank = 0; rank < kMost; ++rank) {
        if (rank < channel.ranks && rank != channel.rank)
          lines[line][rank] = load_line(from(rank, first + line));
      }
    }
#pragma unroll
    for (int line = 0; line < kTogether; ++line) {
      const int word = 2 * (first + line);
#pragma unroll
      for (int rank = 0; rank < kMost; ++rank) {
        if (rank >= channel.ranks) continue;
        uint32_t low = own.words[word], high = own.words[word + 1];
        if (rank != channel.rank) {
          FlaggedLine& held = lines[line][rank];
          if (!has_come(held, call.epoch())) {
            call.wait([&] {
              held = load_line(from(rank, first + line));
              return has_come(held, call.epoch());
            });
          }
          low = data_of(held.half[0]);
          high = data_of(held.half[1]);
        }
        take_word(sum, rank == 0, word, low, T{});
        take_word(sum, rank == 0, word + 1, high, T{});
      }
    }
  }
  return sum;
}

template <class T, class Normed, bool kAligned, int kMost>
__global__ void __launch_bounds__(max_threads(kMost), 1)
    all_reduce_lines_kernel(const __grid_constant__ LineRows<T> rows,
                            const __grid_constant__ RowEnd<Normed> end,
                            const __grid_constant__ Channel channel, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  const Vector8 first_norm = begin_row_kernel<kAligned>(end, stamps);

  ExchangeCall call(channel);
  constexpr int kLines = Packed<T>::kWords / 2;
  const int32_t vectors = (end.cols + kVectorElements - 1) / kVectorElements;
  const auto own_at = [&](int64_t row, int32_t vector) {
    return load_part<kAligned>(rows.part, rows.part_stride, end.cols, row, vector);
  };
  for (auto row = static_cast<int32_t>(blockIdx.x); row < rows.rows; row += static_cast<int32_t>(gridDim.x)) {
    for (auto vector = static_cast<int32_t>(threadIdx.x); vector < vectors;
         vector += static_cast<int32_t>(blockDim.x)) {
      const Packed<T> own = own_at(row, vector);
      for (int distance = 1; distance < channel.ranks; ++distance) {
        const int to = (channel.rank + distance) % channel.ranks;
        FlaggedLine* lines = lines_of(channel, rows, call.parity(), to, channel.rank, row, vectors) + vector;
#pragma unroll
        for (int line = 0; line < kLines; ++line)
          store_line(lines + line * vectors, own.words[2 * line], own.words[2 * line + 1], call.epoch());
      }
    }
  }
  for (auto row = static_cast<int32_t>(blockIdx.x); row < rows.rows; row += static_cast<int32_t>(gridDim.x)) {
    end_row<kAligned>(end, row, first_norm, [&](int32_t vector) {
      return sum_of_ranks<T, kMost>(channel, call, rows, row, vector, vectors, own_at(row, vector));
    });
  }
  call.end();
}

}  // namespace

void all_reduce_lines(Launch& launch, const Reduction& r) {
  const AllReduceArgs& args = r.args;
  for_types(args, [&]<class T, class Normed, bool kAligned>() {
    const LineRows<T> rows{static_cast<const T*>(args.part.data), args.part.stride,
                           static_cast<int32_t>(args.part.rows), r.layout.lines, r.layout.lines_per_rank};
    const int64_t lines = args.part.rows * vectors_of(args.part.cols) * Packed<T>::kWords / 2;
    if (lines > r.layout.lines_per_rank)
      require_equal("all_reduce: lines at most", r.layout.lines_per_rank, lines);
    const auto launch_with = [&]<int kMost>() {
      const uint32_t threads = threads_of_rows(args.part.cols, max_threads(kMost));
      const int64_t fitting = resident_blocks(launch.num_sms(), max_threads(kMost), threads);
      launch("all_reduce_lines", all_reduce_lines_kernel<T, Normed, kAligned, kMost>,
             dim3(static_cast<uint32_t>(std::min(args.part.rows, fitting))), dim3(threads), 0, rows,
             row_end_of<Normed>(args, r.arrived), r.channel);
    };
    r.channel.ranks == 2 ? launch_with.template operator()<2>()
                         : launch_with.template operator()<kMostRanks>();
  });
}

}  // namespace minfer::cuda
