#include "kernels/cuda/delta/delta_ops.h"
#include "kernels/cuda/delta/delta_sequence.h"

// The hidden states behind the positions in front of a step's tokens (HiddenRowsArgs).
//
//   x, out   [tokens, cols] f32
//   ring     [num_slots, kRows, cols] f32
//
// A block takes kColumns columns of a token. Reading and keeping are two launches: a row that is kept may take the place of one that
// another token reads. Bytes: a row in and a row out for each token.
namespace minfer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 4 * kThreads;

struct HiddenRowsParams {
  const float* x;  ///< null: all rows are the ring's
  int64_t stride;
  float* out;
  int64_t out_stride;
  float* ring;
  DeltaSequences sequences;
  int32_t cols;
};

__device__ __forceinline__ float* ring_row(const HiddenRowsParams& p, int32_t slot, int32_t position) {
  return p.ring + (int64_t{slot} * HiddenRing::kRows + position % HiddenRing::kRows) * p.cols;
}

/// Calls body(column) for the thread's columns.
template <class Body>
__device__ __forceinline__ void for_each_column(const HiddenRowsParams& p, const Body& body) {
  const auto first = static_cast<int32_t>(blockIdx.y) * kColumns + static_cast<int32_t>(threadIdx.x);
#pragma unroll
  for (int32_t i = 0; i < kColumns; i += kThreads)
    if (first + i < p.cols) body(first + i);
}

__global__ void __launch_bounds__(kThreads) previous_rows_kernel(HiddenRowsParams p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  const auto token = static_cast<int32_t>(blockIdx.x);
  const int32_t index = sequence_at(p.sequences, token);
  begin_kernel(stamps);
  allow_next_kernel();
  const float* from = nullptr;
  if (index < p.sequences.count) {
    const DeltaSequence sequence(p.sequences, index);
    const int32_t position = p.sequences.positions[token];
    if (!sequence.is_padding && position > 0) {
      const bool is_of_step = p.x != nullptr && token > sequence.first;
      from = is_of_step ? p.x + (token - 1) * p.stride : ring_row(p, sequence.slot, position - 1);
    }
  }
  for_each_column(p, [&](int32_t column) {
    const float value = from == nullptr ? 0.0f : from[column];
    p.out[token * p.out_stride + column] = isfinite(value) ? value : 0.0f;
  });
}

__global__ void __launch_bounds__(kThreads) keep_rows_kernel(HiddenRowsParams p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  const auto token = static_cast<int32_t>(blockIdx.x);
  const int32_t index = sequence_at(p.sequences, token);
  begin_kernel(stamps);
  allow_next_kernel();
  if (index >= p.sequences.count) return;
  const DeltaSequence sequence(p.sequences, index);
  if (sequence.is_padding || token < sequence.first + sequence.count - HiddenRing::kRows) return;
  float* const to = ring_row(p, sequence.slot, p.sequences.positions[token]);
  for_each_column(p, [&](int32_t column) { to[column] = p.x[token * p.stride + column]; });
}

}  // namespace

void hidden_rows(Launch& launch, const ForwardBatch& batch, const HiddenRowsArgs& args) {
  const bool reads = args.out.data != nullptr;
  const int64_t cols = reads ? args.out.cols : args.x.cols;
  if (reads) check_f32("hidden_rows: out", args.out, batch.num_tokens, cols);
  if (args.x.data != nullptr || !reads) check_f32("hidden_rows: x", args.x, batch.num_tokens, cols);
  if (batch.state_slots == nullptr) unsupported("hidden_rows", "a slot for each sequence", "none");
  if (batch.num_tokens == 0) return;
  const HiddenRowsParams params{.x = args.x.f32(),
                                .stride = args.x.stride,
                                .out = args.out.f32(),
                                .out_stride = args.out.stride,
                                .ring = args.ring.rows,
                                .sequences = delta_sequences(batch, {.num_slots = args.ring.num_slots}),
                                .cols = static_cast<int32_t>(cols)};
  const dim3 grid(static_cast<unsigned>(batch.num_tokens),
                  static_cast<unsigned>((cols + kColumns - 1) / kColumns));
  launch("hidden_rows", reads ? previous_rows_kernel : keep_rows_kernel, grid, dim3(kThreads), 0, params);
}

}  // namespace minfer::cuda
