#pragma once

#include "kernels/cpu/lanes/delta_lanes.h"

// Mamba-2 (Dao & Gu 2024, "Transformers are SSMs") in Lanes: the state-space model of a head. Tokens, columns and sums are those of the
// delta rule (delta_lanes.h). Unlike there, a token's addition does not depend on the state before it.
namespace minfer::cpu {
inline namespace MINFER_ISA {

/// One token of columns [first, first + count).
inline void mamba_step(const MambaScanTile& tile, int32_t token, int32_t first, int32_t count) {
  const DeltaRuleTile& rule = tile.rule;
  const float* gates = rule.gates + token * rule.gate_stride;
  const float* x = rule.v + token * rule.stride + first;
  Lanes values[kColumnLanes], update[kColumnLanes], sums[kColumnLanes];
  for (int l = 0; l < kColumnLanes; ++l) {
    values[l] = load_some(x + l * kLanes, count - l * kLanes);
    update[l] = values[l] * Lanes::set(gates[1]);
  }
  update_state(rule, rule.k + token * rule.stride, rule.q + token * rule.stride,
               HeadDecay{Lanes::set(gates[0])}, update, sums);
  const float* gate = tile.gate + token * tile.gate_stride + first;
  float* out = rule.out + token * rule.out_stride + first;
  for (int l = 0; l < kColumnLanes; ++l) {
    const int32_t rest = count - l * kLanes;
    const Lanes value = fma(values[l], Lanes::set(tile.skip), sums[l]);
    store_some(value * silu(load_some(gate + l * kLanes, rest)), out + l * kLanes, rest);
  }
}

inline void mamba_scan(const MambaScanTile& tile) {
  const DeltaRuleTile& rule = tile.rule;
  for (int32_t first = 0; first < rule.value_size; first += kDeltaColumns) {
    const int32_t rest = rule.value_size - first, count = rest < kDeltaColumns ? rest : kDeltaColumns;
    load_columns(rule, first, count);
    for (int32_t token = 0; token < rule.tokens; ++token)
      mamba_step(tile, token, first, count);
    store_columns(rule, first, count);
  }
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
