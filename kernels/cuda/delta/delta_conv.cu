
#include "kernels/cuda/delta/delta_ops.h"
#include "kernels/cuda/delta/delta_sequence.h"
#include "kernels/cuda/ptx/warp.cuh"

// The causal convolution of gated delta nets, SiLU, and the L2 norms of the heads of q and k (DeltaConvArgs has the formulas).
//
//   x, out   [tokens, channels] f32: heads of q, of k, of v; rows `stride` apart
//   weight   [conv_size, channels] f32, bias [channels] f32 or null
//   state    [num_slots, conv_size - 1, channels] f32: inputs before the step's, in order
//
// A warp takes a group of channels: a head of q or k, whose norm it computes, or kValueGroup channels without a norm. A block
// takes kWarps groups, and either a sequence or a tile of kTileTokens tokens. The block of a sequence takes its first
// conv_size - 1 tokens, the only ones that need the state, and writes the inputs for the next step to it, so no other
// block reads or writes the state. The block of a tile takes the other tokens. A step with one token a sequence has no
// tiles. Bytes: x and out once for each token (its earlier inputs come from the L1), the state twice for each sequence.
//
// Lanes take four channels at a time if all sizes and addresses allow it, otherwise one.
namespace minfer::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kTileTokens = 8;
constexpr int32_t kValueGroup = 128;

struct ConvParams {
  const float* x;
  int64_t stride;
  float* out;
  int64_t out_stride;
  const float* weight;
  const float* bias;
  float* state;
  DeltaSequences sequences;
  int32_t num_tokens;
  int32_t conv_size;
  int32_t channels;
  int32_t key_groups;  ///< heads of q and k; 0: no channel is normed
  int32_t key_size;
  float q_scale;  ///< of normalised heads of q; 1 for k
};

/// Neighbouring channels as f32.
template <int kWidth>
struct alignas(4 * kWidth) Channels {
  float at[kWidth];

  __device__ __forceinline__ static Channels load(const float* from) {
    return *reinterpret_cast<const Channels*>(from);
  }
  __device__ __forceinline__ void store(float* to) const { *reinterpret_cast<Channels*>(to) = *this; }
};

/// The channels of a warp.
struct ChannelGroup {
  int32_t first;
  int32_t count;
  float scale;  ///< of normalised heads; 0: no norm

  __device__ ChannelGroup(const ConvParams& p, int32_t index) {
    if (index < p.key_groups) {
      first = index * p.key_size;
      count = p.key_size;
      scale = 2 * index < p.key_groups ? p.q_scale : 1.0f;
    } else {
      first = p.key_groups * p.key_size + (index - p.key_groups) * kValueGroup;
      count = min(kValueGroup, p.channels - first);
      scale = 0.0f;
    }
  }
};

/// The rows of a sequence's inputs, counted from the step's first token; negative: inputs kept in the state. Null: zeros.
struct SequenceInputs {
  const float* x;
  const float* state;
  int64_t stride;
  int32_t kept;
  int32_t channels;
  bool is_fresh;

  __device__ SequenceInputs(const ConvParams& p, const DeltaSequence& sequence, const ChannelGroup& group)
      : x(p.x + sequence.first * p.stride + group.first),
        state(p.state + int64_t{sequence.slot} * (p.conv_size - 1) * p.channels + group.first),
        stride(p.stride),
        kept(p.conv_size - 1),
        channels(p.channels),
        is_fresh(sequence.is_fresh) {}
  __device__ const float* row(int32_t input) const {
    if (input >= 0) return x + input * stride;
    return is_fresh ? nullptr : state + int64_t{kept + input} * channels;
  }
};

/// Computes token `token` of a sequence.
template <int kWidth>
__device__ void convolve(const ConvParams& p, const ChannelGroup& group, const SequenceInputs& inputs,
                         int32_t token, float* out) {
  constexpr int kPieces = kMaxDeltaKeySize / (kWarpSize * kWidth);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize;
  Channels<kWidth> sums[kPieces] = {};
  float squares = 0.0f;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int32_t c = (piece * kWarpSize + lane) * kWidth;
    if (c >= group.count) continue;
    if (p.bias != nullptr) sums[piece] = Channels<kWidth>::load(p.bias + group.first + c);
#pragma unroll 4
    for (int32_t j = 0; j < p.conv_size; ++j) {
      const float* input = inputs.row(token - (p.conv_size - 1) + j);
      if (input == nullptr) continue;
      const auto values = Channels<kWidth>::load(input + c);
      const auto weights = Channels<kWidth>::load(p.weight + int64_t{j} * p.channels + group.first + c);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        sums[piece].at[i] = fmaf(values.at[i], weights.at[i], sums[piece].at[i]);
    }
#pragma unroll
    for (float& value : sums[piece].at) {
      value /= 1.0f + expf(-value);
      squares = fmaf(value, value, squares);
    }
  }
  const float factor = group.scale == 0.0f ? 1.0f : group.scale / sqrtf(warp_sum(squares) + kDeltaNormEps);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int32_t c = (piece * kWarpSize + lane) * kWidth;
    if (c >= group.count) continue;
#pragma unroll
    for (float& value : sums[piece].at)
      value *= factor;
    sums[piece].store(out + c);
  }
}

/// Stores the last inputs in the state. Each lane moves channels that no other lane reads or writes.
template <int kWidth>
__device__ void keep_inputs(const ConvParams& p, const ChannelGroup& group, const DeltaSequence& sequence,
                            const SequenceInputs& inputs) {
  float* state = p.state + int64_t{sequence.slot} * inputs.kept * p.channels + group.first;
  for (int32_t c = static_cast<int32_t>(threadIdx.x) % kWarpSize * kWidth; c < group.count;
       c += kWarpSize * kWidth) {
    for (int32_t row = 0; row < inputs.kept; ++row) {  // an old row that stays moves towards the front
      const float* from = inputs.row(sequence.count - inputs.kept + row);
      const auto kept = from == nullptr ? Channels<kWidth>{} : Channels<kWidth>::load(from + c);
      kept.store(state + int64_t{row} * p.channels + c);
    }
  }
}

template <int kWidth>
__device__ void convolve_beginning(const ConvParams& p, const ChannelGroup& group,
                                   const DeltaSequence& sequence) {
  if (sequence.is_padding) return;
  const SequenceInputs inputs(p, sequence, group);
  const int32_t count = min(sequence.count, inputs.kept);
  for (int32_t token = 0; token < count; ++token)
    convolve<kWidth>(p, group, inputs, token, p.out + (sequence.first + token) * p.out_stride + group.first);
  keep_inputs<kWidth>(p, group, sequence, inputs);
}

/// The sequence of a token. For padding that belongs to no sequence, the number of sequences.
__device__ int32_t sequence_of(const DeltaSequences& sequences, int32_t token) {
  int32_t ended = 0;
  for (int32_t i = static_cast<int32_t>(threadIdx.x) % kWarpSize; i < sequences.count; i += kWarpSize)
    ended += sequences.query_start[i + 1] <= token ? 1 : 0;
  return warp_sum(ended);
}

template <int kWidth>
__device__ void convolve_tile(const ConvParams& p, const ChannelGroup& group, int32_t first, int32_t index) {
  const int32_t end = min(first + kTileTokens, p.num_tokens);
  for (int32_t token = first; token < end && index < p.sequences.count; ++index) {
    const DeltaSequence sequence(p.sequences, index);
    const int32_t end_here = min(end, sequence.first + sequence.count);
    if (!sequence.is_padding) {
      const SequenceInputs inputs(p, sequence, group);
      for (int32_t t = max(token, sequence.first + inputs.kept); t < end_here; ++t)
        convolve<kWidth>(p, group, inputs, t - sequence.first, p.out + t * p.out_stride + group.first);
    }
    token = max(token, end_here);
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kWarps* kWarpSize) delta_conv_kernel(ConvParams p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int32_t tile = block - p.sequences.count;
  const int32_t index = tile < 0 ? block : sequence_of(p.sequences, tile * kTileTokens);
  begin_kernel(stamps);
  allow_next_kernel();
  const ChannelGroup group(
      p, static_cast<int32_t>(blockIdx.y) * kWarps + static_cast<int32_t>(threadIdx.x) / kWarpSize);
  if (group.count <= 0) return;
  if (tile < 0) return convolve_beginning<kWidth>(p, group, DeltaSequence(p.sequences, index));
  convolve_tile<kWidth>(p, group, tile * kTileTokens, index);
}

}  // namespace

void delta_conv(Launch& launch, const ForwardBatch& batch, const DeltaConvArgs& args) {
  const DeltaNetShape& shape = args.shape;
  check_delta("delta_conv", batch, shape);
  check_f32("delta_conv: x", args.x, batch.num_tokens, shape.channels());
  check_f32("delta_conv: out", args.out, batch.num_tokens, shape.channels());
  check_f32("delta_conv: weight", args.weight, shape.conv_size, shape.channels());
  if (args.bias) check_f32("delta_conv: bias", args.bias, 1, shape.channels());
  if (args.out.data == args.x.data) unsupported("delta_conv", "another tensor for out", "x");
  if (batch.num_tokens == 0) return;
  const ConvParams params{.x = args.x.f32(),
                          .stride = args.x.stride,
                          .out = args.out.f32(),
                          .out_stride = args.out.stride,
                          .weight = static_cast<const float*>(args.weight.data),
                          .bias = static_cast<const float*>(args.bias.data),
                          .state = args.state.conv,
                          .sequences = delta_sequences(batch, args.state),
                          .num_tokens = batch.num_tokens,
                          .conv_size = shape.conv_size,
                          .channels = shape.channels(),
                          .key_groups = args.norms_heads ? 2 * shape.key_heads : 0,
                          .key_size = shape.key_size,
                          .q_scale = 1.0f / sqrtf(static_cast<float>(shape.key_size))};
  const int32_t tiles =
      batch.num_tokens == batch.num_sequences ? 0 : (batch.num_tokens + kTileTokens - 1) / kTileTokens;
  const int32_t free = params.channels - params.key_groups * params.key_size;
  const int32_t groups = params.key_groups + (free + kValueGroup - 1) / kValueGroup;
  const dim3 grid(static_cast<unsigned>(batch.num_sequences + tiles),
                  static_cast<unsigned>((groups + kWarps - 1) / kWarps));
  const bool takes_quads = shape.key_size % 4 == 0 && shape.value_columns() % 4 == 0 &&
                           has_aligned_quads(params.x, params.stride) &&
                           has_aligned_quads(params.out, params.out_stride) &&
                           has_aligned_quads(params.weight, 0) && has_aligned_quads(params.bias, 0) &&
                           has_aligned_quads(params.state, 0);
  launch("delta_conv", takes_quads ? delta_conv_kernel<4> : delta_conv_kernel<1>, grid,
         dim3(kWarps * kWarpSize), 0, params);
}

}  // namespace minfer::cuda
