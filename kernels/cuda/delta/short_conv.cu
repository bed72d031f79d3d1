#include <string>
#include <type_traits>

#include "kernels/cuda/delta/delta_ops.h"
#include "kernels/cuda/delta/delta_sequence.h"
#include "kernels/cuda/ptx/element.cuh"

// Gated short convolutions (ShortConvArgs has the formula).
//
//   x        [tokens, 3 channels] f32: b, c, v; rows `stride` apart
//   weight   [conv_size, channels] f32, bias [channels] f32 or null
//   state    [num_slots, conv_size - 1, channels] f32: b v of the tokens before the step's, in order
//   out      [tokens, channels] f32 or bf16
//
// A thread takes a channel, a block kThreads of them. As in delta_conv, a block takes either the first conv_size - 1
// tokens of a sequence, which need the state, and replaces the state, or a tile of kTileTokens of the other tokens.
// Bytes: x and out once for each token (its earlier inputs come from the L1), the state twice for each sequence.
namespace minfer::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int32_t kTileTokens = 8;

template <class Out>
struct ShortConvParams {
  const float* x;
  int64_t stride;
  const float* weight;
  const float* bias;
  float* state;
  Out* out;
  int64_t out_stride;
  DeltaSequences sequences;
  int32_t num_tokens;
  int32_t conv_size;
  int32_t channels;
};

/// A channel of a sequence. Inputs are counted from the step's first token; negative: inputs kept in the state.
template <class Out>
struct SequenceChannel {
  const ShortConvParams<Out>& p;
  const DeltaSequence& sequence;
  int32_t channel;

  __device__ int32_t kept() const { return p.conv_size - 1; }
  __device__ const float* row(int32_t token) const {
    return p.x + (sequence.first + token) * p.stride + channel;
  }
  __device__ float* kept_input(int32_t index) const {
    return p.state + (int64_t{sequence.slot} * kept() + index) * p.channels + channel;
  }
  __device__ float input(int32_t token) const {
    if (token >= 0) return row(token)[0] * row(token)[2 * p.channels];
    return sequence.is_fresh ? 0.0f : *kept_input(kept() + token);
  }
  /// Computes a token; rows of padding become zeros.
  __device__ void convolve(int32_t token) const {
    float value = 0.0f;
    if (!sequence.is_padding) {
#pragma unroll 4
      for (int32_t j = 0; j < p.conv_size; ++j)
        value = fmaf(p.weight[j * p.channels + channel], input(token - kept() + j), value);
      if (p.bias != nullptr) value += p.bias[channel];
      value *= row(token)[p.channels];
    }
    p.out[(sequence.first + token) * p.out_stride + channel] = from_f32<Out>(value);
  }
  /// Stores the last inputs in the state. An old input that stays moves towards the front.
  __device__ void keep_inputs() const {
    if (sequence.is_padding) return;
    for (int32_t i = 0; i < kept(); ++i)
      *kept_input(i) = input(sequence.count - kept() + i);
  }
};

template <class Out>
__device__ void convolve_tile(const ShortConvParams<Out>& p, int32_t token, int32_t index, int32_t channel) {
  const int32_t end = min(token + kTileTokens, p.num_tokens);
  for (; token < end && index < p.sequences.count; ++index) {
    const DeltaSequence sequence(p.sequences, index);
    const SequenceChannel<Out> of{p, sequence, channel};
    const int32_t end_here = min(end, sequence.first + sequence.count);
    for (int32_t t = max(token, sequence.first + of.kept()); t < end_here; ++t)
      of.convolve(t - sequence.first);
    token = max(token, end_here);
  }
}

template <class Out>
__global__ void __launch_bounds__(kThreads) short_conv_kernel(ShortConvParams<Out> p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  const int32_t block = static_cast<int32_t>(blockIdx.x), tile = block - p.sequences.count;
  const int32_t index = tile < 0 ? block : sequence_at(p.sequences, tile * kTileTokens);
  begin_kernel(stamps);
  allow_next_kernel();
  const auto channel = static_cast<int32_t>(blockIdx.y * kThreads + threadIdx.x);
  if (channel >= p.channels) return;
  if (tile >= 0) return convolve_tile(p, tile * kTileTokens, index, channel);
  const DeltaSequence sequence(p.sequences, index);
  const SequenceChannel<Out> of{p, sequence, channel};
  for (int32_t token = 0; token < min(sequence.count, of.kept()); ++token)
    of.convolve(token);
  of.keep_inputs();
}

}  // namespace

void short_conv(Launch& launch, const ForwardBatch& batch, const ShortConvArgs& args) {
  const auto channels = static_cast<int32_t>(args.weight.cols), size = static_cast<int32_t>(args.weight.rows);
  if (size < 2 || size > kMaxShortConvInputs)
    unsupported("short_conv", "2 to " + std::to_string(kMaxShortConvInputs) + " inputs",
                std::to_string(size));
  check_f32("short_conv: weight", args.weight, size, channels);
  if (args.bias) check_f32("short_conv: bias", args.bias, 1, channels);
  check_f32("short_conv: x", args.x, batch.num_tokens, 3 * int64_t{channels});
  require_equal("short_conv: rows of out", batch.num_tokens, args.out.rows);
  require_equal("short_conv: columns of out", channels, args.out.cols);
  if (batch.state_slots == nullptr) unsupported("short_conv", "a slot of states for each sequence", "none");
  if (batch.num_tokens == 0) return;
  const int32_t tiles =
      batch.num_tokens == batch.num_sequences ? 0 : (batch.num_tokens + kTileTokens - 1) / kTileTokens;
  const dim3 grid(static_cast<unsigned>(batch.num_sequences + tiles),
                  static_cast<unsigned>((channels + kThreads - 1) / kThreads));
  const auto launch_to = [&](auto* out) {
    using Out = std::remove_pointer_t<decltype(out)>;
    const ShortConvParams<Out> params{.x = args.x.f32(),
                                      .stride = args.x.stride,
                                      .weight = static_cast<const float*>(args.weight.data),
                                      .bias = static_cast<const float*>(args.bias.data),
                                      .state = args.state.conv,
                                      .out = out,
                                      .out_stride = args.out.stride,
                                      .sequences = delta_sequences(batch, args.state),
                                      .num_tokens = batch.num_tokens,
                                      .conv_size = size,
                                      .channels = channels};
    launch("short_conv", short_conv_kernel<Out>, grid, dim3(kThreads), 0, params);
  };
  if (args.out.dtype == DType::f32) return launch_to(args.out.f32());
  if (args.out.dtype == DType::bf16) return launch_to(static_cast<__nv_bfloat16*>(args.out.data));
  unsupported("short_conv", "out of f32 or bf16", name(args.out.dtype));
}

}  // namespace minfer::cuda
