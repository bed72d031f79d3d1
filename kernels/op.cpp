#include "kernels/op.h"

#include <array>

namespace minfer {

std::string_view name(OpKind kind) {
  static constexpr std::array<std::string_view, 27> kNames{
      "embed",           "rms_norm",    "linear",        "gate_up_swiglu",
      "rope_kv_write",   "attention",   "moe_route",     "moe_gate_up_swiglu",
      "moe_down",        "gather",      "sample",        "transfer",
      "all_reduce",      "all_gather",  "broadcast",     "activate",
      "latent_kv_write", "head_linear", "delta_conv",    "delta_rule",
      "head_gate",       "short_conv",  "hidden_rows",   "mamba_scan",
      "choose_keys",     "mix_streams", "spread_columns"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view name(TokenScope scope) {
  static constexpr std::array<std::string_view, 4> kNames{"all", "decode", "prefill", "logits"};
  return kNames[static_cast<size_t>(scope)];
}

}  // namespace minfer
