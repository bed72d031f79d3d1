#include <algorithm>
#include <array>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/sequence_rows.h"

// Gated short convolutions: some channels of a sequence at a time, token after token. Channels and sequences are independent. Sums begin
// with the oldest input and end with the bias, however a prompt is cut.
namespace minfer::cpu {
namespace {

constexpr int64_t kChannels = 64;
using Channels = std::array<float, kChannels>;

/// Channels [first, first + count) of a sequence.
void convolve(const ShortConvArgs& args, const SequenceRows& rows, int64_t first, int64_t count) {
  const int64_t channels = args.weight.cols, size = args.weight.rows, kept = size - 1;
  const float* weight = static_cast<const float*>(args.weight.data) + first;
  const float* bias = args.bias ? static_cast<const float*>(args.bias.data) + first : nullptr;
  float* state = args.state.conv + rows.slot * kept * channels + first;
  std::array<Channels, kMaxShortConvInputs>
      inputs;  // the last `size` of them, each in the place of the one it replaces
  for (int64_t i = 0; i < kept; ++i) {
    for (int64_t c = 0; c < count; ++c)
      inputs[i][c] = rows.is_fresh ? 0.0f : state[i * channels + c];
  }
  for (int64_t t = 0; t < rows.count; ++t) {
    const float* b = args.x.f32_row(rows.first + t) + first;
    const float* gate = b + channels;
    const float* v = gate + channels;
    float* out = args.out.f32_row(rows.first + t) + first;
    Channels& own = inputs[(kept + t) % size];
    for (int64_t c = 0; c < count; ++c)
      own[c] = b[c] * v[c];
    Channels sums{};
    for (int64_t j = 0; j < size; ++j) {
      const Channels& input = inputs[(t + j) % size];
      for (int64_t c = 0; c < count; ++c)
        sums[c] += weight[j * channels + c] * input[c];
    }
    for (int64_t c = 0; c < count; ++c)
      out[c] = gate[c] * (bias == nullptr ? sums[c] : sums[c] + bias[c]);
  }
  for (int64_t i = 0; i < kept; ++i)
    std::copy_n(inputs[(rows.count + i) % size].begin(), count, state + i * channels);
}

}  // namespace

void short_conv(const ForwardBatch& batch, const ShortConvArgs& args, const OpContext& context) {
  const int64_t channels = args.weight.cols, groups = (channels + kChannels - 1) / kChannels;
  check_slots("short_conv", batch, args.state);
  if (args.weight.rows < 2 || args.weight.rows > kMaxShortConvInputs)
    fail("short_conv: {} inputs, expected 2 to {}", args.weight.rows, kMaxShortConvInputs);
  check_vector("short_conv: weight", args.weight, channels, args.weight.rows);
  if (args.bias) check_vector("short_conv: bias", args.bias, channels);
  check_f32("short_conv: x", args.x, batch.num_tokens, 3 * channels);
  check_f32("short_conv: out", args.out, batch.num_tokens, channels);
  const auto convolve_group = [&](int64_t sequence, int64_t group, int32_t) {
    const int64_t first = group * kChannels;
    convolve(args, rows_of(batch, sequence), first, std::min(kChannels, channels - first));
  };
  for_each_head(batch, groups, args.x.rows * args.x.cols, context, convolve_group);
}

}  // namespace minfer::cpu
