#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/ops.h"

// The ops with states, and the hidden states of last positions. Gated delta nets and Mamba-2 take one head of a sequence at a time:
// rows of a sequence need the rows before them, heads and sequences are independent. Gated short convolutions take some channels of a
// sequence at a time, token after token. Sums begin with the oldest input and end with the bias, however a prompt is cut.
namespace minfer::cpu {
namespace {

/// A sequence's rows and its slot.
struct SequenceRows {
  int64_t first;
  int32_t count;
  int32_t slot;
  bool is_fresh;  ///< the state counts as zeros
};

SequenceRows rows_of(const ForwardBatch& batch, int64_t sequence) {
  const int32_t first = batch.query_start[sequence];
  return {first, batch.query_start[sequence + 1] - first, batch.state_slots[sequence],
          batch.positions[first] == 0};
}

/// Throws Error unless each sequence has one of `num_slots` slots.
void check_slots(std::string_view op, const ForwardBatch& batch, int32_t num_slots) {
  if (batch.state_slots == nullptr) fail("{}: no slots of states", op);
  for (int32_t i = 0; i < batch.num_sequences; ++i) {
    if (batch.state_slots[i] < 0 || batch.state_slots[i] >= num_slots)
      fail("{}: slot {} of sequence {}, expected 0 to {}", op, batch.state_slots[i], i, num_slots - 1);
  }
}

/// Calls body(sequence, head, thread) for each head, or other independent part, of each sequence. `elements`: of the whole op.
template <class Body>
void for_each_head(const ForwardBatch& batch, int64_t heads, int64_t elements, const OpContext& context,
                   const Body& body) {
  for_each_part(batch.num_sequences * heads, elements, context,
                [&](int64_t i, int32_t thread) { body(i / heads, i % heads, thread); });
}

void check_states(std::string_view op, const ForwardBatch& batch, const DeltaNetShape& shape,
                  const RecurrentLayer& state) {
  if (shape.key_heads < 1 || shape.value_heads < 1 || shape.value_heads % shape.key_heads != 0 ||
      shape.key_size < 1 || shape.value_size < 1 || shape.conv_size < 2) {
    fail("{}: {} key heads of {}, {} value heads of {}, convolution of {}", op, shape.key_heads,
         shape.key_size, shape.value_heads, shape.value_size, shape.conv_size);
  }
  check_slots(op, batch, state.num_slots);
}

double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

/// e^(decay softplus(x)), computed in double and rounded once.
float decay_of(float decay, double x) {
  return static_cast<float>(std::exp(static_cast<double>(decay) * softplus(x)));
}

/// The tiles of an op, which share its memory: columns of a state for each thread, and two numbers of each value head and token.
struct RuleTiles {
  RuleTiles(const DeltaNetShape& of, const RecurrentLayer& states, const Tensor& in, const Tensor& to,
            const OpContext& context)
      : shape(of), state(states), x(in), out(to), columns_size(int64_t{of.key_size} * kDeltaColumns) {
    const int64_t all_columns = context.pool->threads() * columns_size;
    const auto floats = static_cast<size_t>(all_columns + in.rows * 2 * of.value_heads);
    columns = static_cast<float*>(context.workspace->take(floats * sizeof(float)));
    gates = columns + all_columns;
  }
  /// A value head of a sequence, with the first columns of x as q, k and v.
  DeltaRuleTile operator()(const SequenceRows& rows, int64_t head, int32_t thread) const {
    const float* row = x.f32_row(rows.first);
    return {.q = row,
            .k = row,
            .v = row,
            .stride = x.stride,
            .gates = gates + (rows.first * shape.value_heads + head) * 2,
            .gate_stride = 2 * int64_t{shape.value_heads},
            .out = out.f32_row(rows.first) + head * shape.value_size,
            .out_stride = out.stride,
            .state = state.delta + rows.slot * shape.delta_state() + head * shape.key_size * shape.value_size,
            .is_fresh = rows.is_fresh,
            .tokens = rows.count,
            .key_size = shape.key_size,
            .value_size = shape.value_size,
            .scratch = columns + thread * columns_size};
  }

  const DeltaNetShape& shape;
  const RecurrentLayer& state;
  const Tensor &x, &out;
  int64_t columns_size;
  float *columns, *gates;
};

/// a (unless rows have their own) and b of a token's value heads, side by side.
void make_gates(const DeltaRuleArgs& args, const float* row, float* gates) {
  const auto* dt_bias = static_cast<const float*>(args.dt_bias.data);
  const auto* decay = static_cast<const float*>(args.decay.data);
  const bool has_alphas = !args.shape.decays_rows;
  const int32_t group = args.shape.gate_group();
  for (int32_t h = 0; h < args.shape.value_heads; ++h) {
    const float* of_head = has_alphas ? row + h / group * 2 * group + h % group : row + h;
    const auto beta = static_cast<double>(of_head[0]);
    if (has_alphas)
      gates[2 * h] =
          decay_of(decay[h], static_cast<double>(of_head[group]) + static_cast<double>(dt_bias[h]));
    gates[2 * h + 1] = static_cast<float>(1.0 / (1.0 + std::exp(-beta)));
  }
}

/// Makes the alphas of a token's value head the decays of its rows.
void make_decays(const DeltaRuleArgs& args, int64_t token, int64_t head) {
  const int64_t first = head * args.shape.key_size;
  const float decay = static_cast<const float*>(args.decay.data)[head];
  const float* dt_bias = static_cast<const float*>(args.dt_bias.data) + first;
  float* alphas = args.alphas.f32_row(token) + first;
  for (int32_t i = 0; i < args.shape.key_size; ++i)
    alphas[i] = decay_of(decay, static_cast<double>(alphas[i]) + static_cast<double>(dt_bias[i]));
}

/// The same of Mamba-2: e^(decay d) and d.
void make_steps(const MambaScanArgs& args, const float* dt, float* steps) {
  const auto* dt_bias = static_cast<const float*>(args.dt_bias.data);
  const auto* decay = static_cast<const float*>(args.decay.data);
  for (int32_t h = 0; h < args.shape.value_heads; ++h) {
    const double d = softplus(static_cast<double>(dt[h]) + static_cast<double>(dt_bias[h]));
    steps[2 * h] = static_cast<float>(std::exp(static_cast<double>(decay[h]) * d));
    steps[2 * h + 1] = static_cast<float>(d);
  }
}

/// Channels of a delta net's convolution that are taken together where no head needs them.
constexpr int64_t kFreeChannels = 128;

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

void delta_conv(const ForwardBatch& batch, const DeltaConvArgs& args, const OpContext& context) {
  const DeltaNetShape& shape = args.shape;
  check_states("delta_conv", batch, shape, args.state);
  const int64_t channels = shape.channels();
  check_f32("delta_conv: x", args.x, batch.num_tokens, channels);
  check_f32("delta_conv: out", args.out, batch.num_tokens, channels);
  if (args.out.data == args.x.data) fail("delta_conv: out is x, expected another tensor");
  if (args.weight.dtype != DType::f32 || args.weight.rows != shape.conv_size ||
      args.weight.cols != channels) {
    fail("delta_conv: weight [{}, {}] {}, expected [{}, {}] f32", args.weight.rows, args.weight.cols,
         name(args.weight.dtype), shape.conv_size, channels);
  }
  if (args.bias) check_vector("delta_conv: bias", args.bias, channels);
  const int64_t normed_heads = args.norms_heads ? 2 * shape.key_heads : 0;
  const int64_t free = channels - normed_heads * shape.key_size;
  const int64_t parts = normed_heads + (free + kFreeChannels - 1) / kFreeChannels;
  for_each_head(batch, parts, args.x.rows * channels, context, [&](int64_t sequence, int64_t head, int32_t) {
    const SequenceRows rows = rows_of(batch, sequence);
    const bool is_free = head >= normed_heads;
    const int64_t first =
        is_free ? channels - free + (head - normed_heads) * kFreeChannels : head * shape.key_size;
    const int64_t count = is_free ? std::min(kFreeChannels, channels - first) : shape.key_size;
    const float* bias = args.bias ? static_cast<const float*>(args.bias.data) + first : nullptr;
    const float of_q = 1.0f / std::sqrt(static_cast<float>(shape.key_size));
    const float of_key_head = head < shape.key_heads ? of_q : 1.0f;
    context.lanes->delta_conv({.x = args.x.f32_row(rows.first) + first,
                               .out = args.out.f32_row(rows.first) + first,
                               .stride = args.x.stride,
                               .out_stride = args.out.stride,
                               .weight = static_cast<const float*>(args.weight.data) + first,
                               .bias = bias,
                               .state = args.state.conv + rows.slot * shape.conv_state() + first,
                               .weight_stride = channels,
                               .is_fresh = rows.is_fresh,
                               .tokens = rows.count,
                               .channels = static_cast<int32_t>(count),
                               .conv_size = shape.conv_size,
                               .head_scale = is_free ? 0.0f : of_key_head});
  });
}

void delta_rule(const ForwardBatch& batch, const DeltaRuleArgs& args, const OpContext& context) {
  const DeltaNetShape& shape = args.shape;
  check_states("delta_rule", batch, shape, args.state);
  const int64_t heads = shape.value_heads;
  check_f32("delta_rule: qkv", args.qkv, batch.num_tokens, shape.channels());
  check_f32("delta_rule: gates", args.gates, batch.num_tokens, (shape.decays_rows ? 1 : 2) * heads);
  if (shape.decays_rows) check_f32("delta_rule: alphas", args.alphas, batch.num_tokens, shape.alphas());
  check_f32("delta_rule: out", args.out, batch.num_tokens, shape.value_columns());
  check_vector("delta_rule: dt_bias", args.dt_bias, shape.alphas());
  check_vector("delta_rule: decay", args.decay, heads);
  const RuleTiles tiles(shape, args.state, args.qkv, args.out, context);
  for_each_row(args.gates, context,
               [&](int64_t t) { make_gates(args, args.gates.f32_row(t), tiles.gates + t * 2 * heads); });
  const int64_t elements = (args.qkv.rows + batch.num_sequences) * shape.delta_state();
  for_each_head(batch, heads, elements, context, [&](int64_t sequence, int64_t head, int32_t thread) {
    const SequenceRows rows = rows_of(batch, sequence);
    DeltaRuleTile tile = tiles(rows, head, thread);
    if (shape.decays_rows) {
      for (int64_t t = rows.first; t < rows.first + rows.count; ++t)
        make_decays(args, t, head);
      tile.decays = args.alphas.f32_row(rows.first) + head * shape.key_size;
      tile.decay_stride = args.alphas.stride;
    }
    tile.q += int64_t{shape.key_head_of(static_cast<int32_t>(head))} * shape.key_size;
    tile.k = tile.q + shape.key_columns();
    tile.v += 2 * shape.key_columns() + head * shape.value_size;
    context.lanes->delta_rule(tile);
  });
}

void mamba_scan(const ForwardBatch& batch, const MambaScanArgs& args, const OpContext& context) {
  const DeltaNetShape& shape = args.shape;
  check_states("mamba_scan", batch, shape, args.state);
  const int64_t heads = shape.value_heads, columns = shape.value_columns();
  check_f32("mamba_scan: xbc", args.xbc, batch.num_tokens, shape.channels());
  check_f32("mamba_scan: dt", args.dt, batch.num_tokens, heads);
  check_f32("mamba_scan: gate", args.gate, batch.num_tokens, columns);
  check_f32("mamba_scan: out", args.out, batch.num_tokens, columns);
  check_vector("mamba_scan: dt_bias", args.dt_bias, heads);
  check_vector("mamba_scan: decay", args.decay, heads);
  check_vector("mamba_scan: skip", args.skip, heads);
  const RuleTiles tiles(shape, args.state, args.xbc, args.out, context);
  for_each_row(args.dt, context,
               [&](int64_t t) { make_steps(args, args.dt.f32_row(t), tiles.gates + t * 2 * heads); });
  const int64_t elements = (args.xbc.rows + batch.num_sequences) * shape.delta_state();
  for_each_head(batch, heads, elements, context, [&](int64_t sequence, int64_t head, int32_t thread) {
    const SequenceRows rows = rows_of(batch, sequence);
    MambaScanTile tile{.rule = tiles(rows, head, thread),
                       .gate = args.gate.f32_row(rows.first) + head * shape.value_size,
                       .gate_stride = args.gate.stride,
                       .skip = static_cast<const float*>(args.skip.data)[head]};
    tile.rule.k += columns + int64_t{shape.key_head_of(static_cast<int32_t>(head))} * shape.key_size;
    tile.rule.q = tile.rule.k + shape.key_columns();
    tile.rule.v += head * shape.value_size;
    context.lanes->mamba_scan(tile);
  });
}

void head_gate(const HeadGateArgs& args, const OpContext& context) {
  check_f32("head_gate: x", args.x, args.x.rows, args.x.cols);
  check_f32("head_gate: out", args.out, args.x.rows, args.x.cols);
  if (args.heads < 1 || args.x.cols % args.heads != 0)
    fail("head_gate: {} columns, expected a multiple of {} heads", args.x.cols, args.heads);
  const int64_t size = args.x.cols / args.heads;
  if (args.gate.rows != args.x.rows || args.gate.cols < (args.heads - 1) * args.gate_stride + size) {
    fail("head_gate: gates [{}, {}], expected [{}, {} or more]", args.gate.rows, args.gate.cols, args.x.rows,
         (args.heads - 1) * args.gate_stride + size);
  }
  if (args.norm) check_vector("head_gate: norm", args.norm, size);
  for_each_row(args.x, context, [&](int64_t t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      const float* x = args.x.f32_row(t) + h * size;
      float* out = args.out.f32_row(t) + h * size;
      if (args.norm) {
        const auto* weight = static_cast<const float*>(args.norm.data);
        context.lanes->rms_norm_row(x, weight, args.norm_eps, size, out);
      }
      context.lanes->gate_row(args.norm ? out : x, args.gate.f32_row(t) + h * args.gate_stride, args.function,
                              size, out);
    }
  });
}

void short_conv(const ForwardBatch& batch, const ShortConvArgs& args, const OpContext& context) {
  const int64_t channels = args.weight.cols, groups = (channels + kChannels - 1) / kChannels;
  check_slots("short_conv", batch, args.state.num_slots);
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

void hidden_rows(const ForwardBatch& batch, const HiddenRowsArgs& args, const OpContext& context) {
  const bool reads = args.out.data != nullptr, has_x = args.x.data != nullptr;
  const int64_t cols = reads ? args.out.cols : args.x.cols;
  check_slots("hidden_rows", batch, args.ring.num_slots);
  if (reads) check_f32("hidden_rows: out", args.out, batch.num_tokens, cols);
  if (has_x || !reads) check_f32("hidden_rows: x", args.x, batch.num_tokens, cols);
  for_each_part(batch.num_sequences, batch.num_tokens * cols, context, [&](int64_t sequence, int32_t) {
    const SequenceRows rows = rows_of(batch, sequence);
    const auto ring_row = [&](int32_t position) {
      const int64_t row = int64_t{rows.slot} * HiddenRing::kRows + position % HiddenRing::kRows;
      return args.ring.rows + row * cols;
    };
    for (int64_t t = rows.first; t < rows.first + rows.count; ++t) {
      const int32_t position = batch.positions[t];
      if (!reads) {
        if (t >= rows.first + rows.count - HiddenRing::kRows)
          std::copy_n(args.x.f32_row(t), cols, ring_row(position));
      } else if (position == 0) {
        std::fill_n(args.out.f32_row(t), cols, 0.0f);
      } else {
        const float* const from = has_x && t > rows.first ? args.x.f32_row(t - 1) : ring_row(position - 1);
        std::transform(from, from + cols, args.out.f32_row(t),
                       [](float value) { return std::isfinite(value) ? value : 0.0f; });
      }
    }
  });
}

}  // namespace minfer::cpu
