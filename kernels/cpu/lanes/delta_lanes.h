#pragma once

#include <math.h>

#include "kernels/cpu/lanes/lane_kernels.h"
#include "kernels/cpu/lanes/vector_math.h"

// Gated delta nets (Yang et al. 2024) in Lanes: the convolution of a head's channels, the delta rule of a value head, and head gates.
//
// Tokens go one after the other, as in the formula: a chunked form would sum in another order, and a token's result would depend on where
// the chunks of a prompt end. Sums over a head's elements have a fixed order: the convolution adds the oldest input first, squares are
// added lane by lane as in row_lanes.h, and a state's even rows and odd rows are summed separately, then added.
//
// Columns of a state are independent. So kDeltaColumns of them (16 KiB for 128 rows) stay in the first-level cache while all tokens of the
// step pass by: the state is read from memory, and written back, once a step.
namespace minfer::cpu {
inline namespace MINFER_ISA {

/// The row of an input, counted from the step's first token; a negative one is a row that the state keeps. Null: it counts as zeros.
inline const float* conv_input(const DeltaConvTile& tile, int32_t input) {
  if (input >= 0) return tile.x + input * tile.stride;
  return tile.is_fresh ? nullptr : tile.state + (tile.conv_size - 1 + input) * tile.weight_stride;
}

/// Divides x by the root of the sum of its squares, and multiplies it by `scale`.
inline void l2_norm_row(float* x, int64_t size, float scale) {
  Lanes squares = Lanes::set(0.0f);
  for (int64_t i = 0; i < size; i += kLanes) {
    const Lanes v = load_some(x + i, size - i);
    squares = fma(v, v, squares);
  }
  const Lanes factor = Lanes::set(scale / sqrtf(reduce_add(squares) + kDeltaNormEps));
  for (int64_t i = 0; i < size; i += kLanes)
    store_some(load_some(x + i, size - i) * factor, x + i, size - i);
}

inline void keep_conv_inputs(const DeltaConvTile& tile) {
  const int32_t kept = tile.conv_size - 1;
  for (int32_t row = 0; row < kept; ++row) {  // an old row that stays moves towards the front
    const float* from = conv_input(tile, tile.tokens - kept + row);
    float* to = tile.state + row * tile.weight_stride;
    for (int32_t c = 0; c < tile.channels; ++c)
      to[c] = from == nullptr ? 0.0f : from[c];
  }
}

inline void delta_conv(const DeltaConvTile& tile) {
  for (int32_t token = 0; token < tile.tokens; ++token) {
    float* out = tile.out + token * tile.out_stride;
    for (int32_t c = 0; c < tile.channels; c += kLanes) {
      const int32_t count = tile.channels - c;
      Lanes sum = Lanes::set(0.0f);
      for (int32_t j = 0; j < tile.conv_size; ++j) {
        const float* input = conv_input(tile, token - (tile.conv_size - 1) + j);
        if (input == nullptr) continue;
        sum =
            fma(load_some(input + c, count), load_some(tile.weight + j * tile.weight_stride + c, count), sum);
      }
      if (tile.bias != nullptr) sum = sum + load_some(tile.bias + c, count);
      store_some(silu(sum), out + c, count);
    }
    if (tile.head_scale != 0.0f) l2_norm_row(out, tile.channels, tile.head_scale);
  }
  keep_conv_inputs(tile);
}

inline constexpr int kColumnLanes = kDeltaColumns / kLanes;

/// Loads columns [first, first + count) of the state, with zeros behind them.
inline void load_columns(const DeltaRuleTile& tile, int32_t first, int32_t count) {
  for (int32_t row = 0; row < tile.key_size; ++row) {
    const float* from = tile.state + int64_t{row} * tile.value_size + first;
    float* to = tile.scratch + row * kDeltaColumns;
    for (int32_t c = 0; c < kDeltaColumns; c += kLanes)
      (tile.is_fresh || c >= count ? Lanes::set(0.0f) : load_some(from + c, count - c)).store(to + c);
  }
}

inline void store_columns(const DeltaRuleTile& tile, int32_t first, int32_t count) {
  for (int32_t row = 0; row < tile.key_size; ++row) {
    float* to = tile.state + int64_t{row} * tile.value_size + first;
    for (int32_t c = 0; c < count; c += kLanes)
      store_some(Lanes::load(tile.scratch + row * kDeltaColumns + c), to + c, count - c);
  }
}

/// A token's decay of a head's state. of_key(): the factor by which a row in front of its decay counts in S^T k; `rest` multiplies the sum.
struct HeadDecay {
  Lanes rest;
  Lanes of_row(int32_t) const { return rest; }
  Lanes of_key(const float* k, int32_t row) const { return Lanes::broadcast(k + row); }
};
/// Decays of each row.
struct RowDecays {
  const float* decays;
  Lanes rest = Lanes::set(1.0f);
  Lanes of_row(int32_t row) const { return Lanes::broadcast(decays + row); }
  Lanes of_key(const float* k, int32_t row) const { return Lanes::set(k[row] * decays[row]); }
};

/// sums += factor times a row of the scratch memory.
inline void add_row(const DeltaRuleTile& tile, int32_t row, Lanes factor, Lanes* sums) {
  for (int l = 0; l < kColumnLanes; ++l)
    sums[l] = fma(Lanes::load(tile.scratch + row * kDeltaColumns + l * kLanes), factor, sums[l]);
}

/// The same after the row's own step: S = a S + k u^T.
inline void update_row(const DeltaRuleTile& tile, int32_t row, const float* k, const float* q, Lanes decay,
                       const Lanes* update, Lanes* sums) {
  const Lanes key = Lanes::broadcast(k + row), factor = Lanes::broadcast(q + row);
  for (int l = 0; l < kColumnLanes; ++l) {
    float* const at = tile.scratch + row * kDeltaColumns + l * kLanes;
    const Lanes state = fma(update[l], key, Lanes::load(at) * decay);
    state.store(at);
    sums[l] = fma(state, factor, sums[l]);
  }
}

/// All rows' steps of a token; gives S^T q behind them.
template <class Decay>
inline void update_state(const DeltaRuleTile& tile, const float* k, const float* q, const Decay& decay,
                         const Lanes* update, Lanes* sums) {
  const int32_t pairs = tile.key_size / 2 * 2;
  Lanes odd[kColumnLanes];
  for (int l = 0; l < kColumnLanes; ++l)
    sums[l] = odd[l] = Lanes::set(0.0f);
  for (int32_t row = 0; row < pairs; row += 2) {
    update_row(tile, row, k, q, decay.of_row(row), update, sums);
    update_row(tile, row + 1, k, q, decay.of_row(row + 1), update, odd);
  }
  if (pairs < tile.key_size) update_row(tile, pairs, k, q, decay.of_row(pairs), update, sums);
  for (int l = 0; l < kColumnLanes; ++l)
    sums[l] = sums[l] + odd[l];
}

/// One token: corrects the columns' answer to k towards v, then asks them with q. `v` and `out` are [kDeltaColumns].
template <class Decay>
inline void delta_step(const DeltaRuleTile& tile, int32_t token, const Decay& decay, const float* v,
                       float* out) {
  const float* k = tile.k + token * tile.stride;
  const float* q = tile.q + token * tile.stride;
  const Lanes strength = Lanes::set(tile.gates[token * tile.gate_stride + 1]), zero = Lanes::set(0.0f);
  const int32_t pairs = tile.key_size / 2 * 2;
  Lanes even[kColumnLanes], odd[kColumnLanes], update[kColumnLanes];
  for (int l = 0; l < kColumnLanes; ++l)
    even[l] = odd[l] = zero;
  for (int32_t row = 0; row < pairs; row += 2) {
    add_row(tile, row, decay.of_key(k, row), even);
    add_row(tile, row + 1, decay.of_key(k, row + 1), odd);
  }
  if (pairs < tile.key_size) add_row(tile, pairs, decay.of_key(k, pairs), even);
  for (int l = 0; l < kColumnLanes; ++l)
    update[l] = (Lanes::load(v + l * kLanes) - (even[l] + odd[l]) * decay.rest) * strength;
  update_state(tile, k, q, decay, update, even);
  for (int l = 0; l < kColumnLanes; ++l)
    even[l].store(out + l * kLanes);
}

inline void delta_rule(const DeltaRuleTile& tile) {
  float v[kDeltaColumns], out[kDeltaColumns];
  for (int32_t first = 0; first < tile.value_size; first += kDeltaColumns) {
    const int32_t rest = tile.value_size - first, count = rest < kDeltaColumns ? rest : kDeltaColumns;
    load_columns(tile, first, count);
    for (int32_t token = 0; token < tile.tokens; ++token) {
      const float* values = tile.v + token * tile.stride + first;
      for (int32_t c = 0; c < kDeltaColumns; ++c)
        v[c] = c < count ? values[c] : 0.0f;
      if (tile.decays != nullptr)
        delta_step(tile, token, RowDecays{tile.decays + token * tile.decay_stride}, v, out);
      else
        delta_step(tile, token, HeadDecay{Lanes::set(tile.gates[token * tile.gate_stride])}, v, out);
      for (int32_t c = 0; c < count; ++c)
        tile.out[token * tile.out_stride + first + c] = out[c];
    }
    store_columns(tile, first, count);
  }
}

inline void gate_row(const float* x, const float* gate, HeadGateArgs::Function function, int64_t size,
                     float* out) {
  using Function = HeadGateArgs::Function;
  for (int64_t i = 0; i < size; i += kLanes) {
    const Lanes value = load_some(x + i, size - i), slope = load_some(gate + i, size - i);
    const Lanes gated_value = function == Function::gelu_tanh
                                  ? gated<GateActivation::gelu_tanh>(slope, value)
                                  : times_sigmoid(function == Function::silu ? value * slope : value, slope);
    store_some(gated_value, out + i, size - i);
  }
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
