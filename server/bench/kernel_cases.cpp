#include "server/bench/kernel_cases.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "kernels/error.h"

namespace minfer {
namespace {

constexpr int64_t kMostCachedTokens = int64_t{1} << 19;
/// Rows of logits are at most a sequence each, and sequences of a step a few hundred.
constexpr int32_t kMostSequences = 512;

struct KernelOp {
  std::string_view name;
  OpKind kind;
  TokenScope scope;
  enum class Ffn : uint8_t { any, dense, experts } ffn = Ffn::any;
};

constexpr std::array<KernelOp, 20> kOps{{
    {"embed", OpKind::embed, TokenScope::all},
    {"rms_norm", OpKind::rms_norm, TokenScope::all},
    {"qkv", OpKind::linear, TokenScope::all},
    {"rope_kv_write", OpKind::rope_kv_write, TokenScope::all},
    {"q_b", OpKind::linear, TokenScope::all},
    {"latent_kv_write", OpKind::latent_kv_write, TokenScope::all},
    {"attn_k_b", OpKind::head_linear, TokenScope::all},
    {"attention_decode", OpKind::attention, TokenScope::decode},
    {"attention_prefill", OpKind::attention, TokenScope::prefill},
    {"attn_v_b", OpKind::head_linear, TokenScope::all},
    {"attn_output", OpKind::linear, TokenScope::all},
    {"gate_up_swiglu", OpKind::gate_up_swiglu, TokenScope::all, KernelOp::Ffn::dense},
    {"ffn_down", OpKind::linear, TokenScope::all, KernelOp::Ffn::dense},
    {"moe_router", OpKind::linear, TokenScope::all, KernelOp::Ffn::experts},
    {"moe_route", OpKind::moe_route, TokenScope::all, KernelOp::Ffn::experts},
    {"moe_gate_up_swiglu", OpKind::moe_gate_up_swiglu, TokenScope::all, KernelOp::Ffn::experts},
    {"moe_down", OpKind::moe_down, TokenScope::all, KernelOp::Ffn::experts},
    {"gather_rows", OpKind::gather, TokenScope::logits},
    {"lm_head", OpKind::linear, TokenScope::logits},
    {"sample", OpKind::sample, TokenScope::logits},
}};

bool has_op(const ModelConfig& config, const KernelOp& op) {
  if (op.kind == OpKind::rms_norm && config.architecture.norm != NormKind::rms) return false;
  if (op.kind == OpKind::latent_kv_write || op.kind == OpKind::head_linear) return config.is_latent();
  if (op.kind == OpKind::rope_kv_write) return !config.is_latent() && !config.architecture.gates_heads;
  if (op.name == "q_b") return config.latent.q_rank > 0;
  if (op.kind == OpKind::gate_up_swiglu && !config.architecture.has_gate) return false;
  return op.ffn == KernelOp::Ffn::any || (op.ffn == KernelOp::Ffn::experts) == config.is_moe();
}

const KernelOp& find_op(const ModelConfig& config, std::string_view name) {
  const auto found = std::ranges::find(kOps, name, &KernelOp::name);
  if (found == kOps.end() || !has_op(config, *found)) {
    fail("--op: \"{}\" is no op of this model, expected one of {}", name,
         fmt::join(kernel_op_names(config), ", "));
  }
  return *found;
}

/// Of ops of latent attention.
void set_latent_sizes(const ModelConfig& config, const KernelOp& op, OpInfo& info) {
  const LatentAttention& latent = config.latent;
  const int64_t heads = config.num_heads;
  if (op.name == "q_b") {
    info.in_features = latent.q_rank;
    info.out_features = heads * latent.key_size;
    info.out_element_bytes = 4;
  } else if (op.name == "latent_kv_write") {
    info.in_features = info.out_features = config.head_size;
    info.rotary_size = config.rotary_size;
    info.in_element_bytes = 4;
  } else if (op.name == "attn_k_b") {
    info.in_features = heads * (latent.key_size - config.rotary_size);
    info.out_features = heads * latent.kv_rank;
    info.in_element_bytes = 4;
  } else if (op.name == "attn_v_b") {
    info.in_features = heads * latent.kv_rank;
    info.out_features = heads * latent.value_size;
  }
}

/// The layer whose ops and weights the cases have: one that attends, with experts where the model has them. llama.cpp's
/// mixes give those of the first eighth more bits.
int32_t layer_of_cases(const ModelConfig& config) {
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const int32_t layer = (config.num_layers / 8 + i) % config.num_layers;
    if (config.attends(layer) && (!config.is_moe() || config.layer(layer).has_experts)) return layer;
  }
  fail<FileError>("no layer of the model attends and has experts: no cases for its ops");
}

/// What Decoder's op table says of the op, but for its weights.
OpInfo info_of(const ModelConfig& config, const KernelTypes& types, const KernelOp& op) {
  const auto activation = static_cast<int32_t>(traits(types.activation).block_bytes);
  constexpr int32_t kF32 = 4;
  const int32_t layer = layer_of_cases(config);
  OpInfo info{.name = std::string(op.name),
              .kind = op.kind,
              .scope = op.scope,
              .in_features = config.hidden_size,
              .out_features = config.hidden_size,
              .heads = config.num_heads,
              .kv_heads = config.heads(layer).kv_heads,
              .head_size = config.heads(layer).size,
              .v_head_size = config.value_size(layer),
              .v_in_k = config.is_latent(),
              .kv_dtype = types.kv,
              .experts = config.num_experts,
              .experts_used = config.num_experts_used,
              .in_element_bytes = activation,
              .out_element_bytes = activation};
  const auto product = [&](int64_t in, int64_t out, int32_t out_element_bytes) {
    info.in_features = in;
    info.out_features = out;
    info.out_element_bytes = out_element_bytes;
  };
  const int64_t hidden = config.hidden_size;
  if (op.name == "embed") info.out_element_bytes = kF32;
  if (op.name == "rms_norm" || op.name == "rope_kv_write") info.in_element_bytes = kF32;
  if (op.name == "gather_rows") info.in_element_bytes = info.out_element_bytes = kF32;
  if (op.name == "qkv") product(hidden, config.qkv_size(layer), kF32);
  if (op.name == "attn_output") product(config.output_size(layer), hidden, kF32);
  const int64_t ffn = op.ffn == KernelOp::Ffn::experts ? config.expert_ffn_size : config.ffn_size;
  if (op.name == "gate_up_swiglu" || op.name == "moe_gate_up_swiglu") product(hidden, ffn, activation);
  if (op.name == "ffn_down" || op.name == "moe_down") product(ffn, hidden, kF32);
  if (config.is_latent()) set_latent_sizes(config, op, info);
  if (op.name == "lm_head") product(hidden, config.vocab_size, kF32);
  if (op.name == "moe_router") product(hidden, config.num_experts, kF32);
  if (op.name == "moe_route" || op.name == "sample") {
    info.in_features = op.name == "sample" ? config.vocab_size : config.num_experts;
    info.in_element_bytes = kF32;
  }
  info.add_to_out = op.name == "attn_output" || op.name == "ffn_down" || op.name == "moe_down";
  return info;
}

/// How layers attend in a context, each kind once, those that see all of it first.
std::vector<AttentionKind> kinds_in(const ModelConfig& config, int32_t context) {
  std::vector<AttentionKind> kinds = attention_kinds_of(config, context);
  std::ranges::stable_sort(kinds, {},
                           [](const AttentionKind& kind) { return static_cast<bool>(kind.window); });
  return kinds;
}

std::vector<int32_t> powers_of_two(int32_t first, int32_t last, int32_t factor = 2) {
  std::vector<int32_t> powers;
  for (int32_t power = first; power <= last; power *= factor)
    powers.push_back(power);
  return powers;
}

std::vector<int32_t> default_tokens(TokenScope scope, bool on_gpu) {
  if (!on_gpu) return powers_of_two(1, scope == TokenScope::decode ? 16 : 64, 4);
  switch (scope) {
    case TokenScope::decode:
      return powers_of_two(1, 256);
    case TokenScope::logits:
      return powers_of_two(1, kMostSequences);
    case TokenScope::prefill:
      return powers_of_two(64, 8192);
    case TokenScope::all:
      break;
  }
  return powers_of_two(1, 8192);
}

std::vector<int32_t> default_contexts(bool on_gpu) {
  return on_gpu ? std::vector<int32_t>{512, 2048, 8192, 32768} : std::vector<int32_t>{256, 1024};
}

}  // namespace

std::vector<std::string_view> kernel_op_names(const ModelConfig& config) {
  std::vector<std::string_view> names;
  for (const KernelOp& op : kOps) {
    if (has_op(config, op)) names.push_back(op.name);
  }
  return names;
}

std::vector<KernelCase> list_kernel_cases(const ModelConfig& config, const KernelTypes& types,
                                          std::string_view op_name, const KernelSizes& sizes, bool on_gpu) {
  const KernelOp& op = find_op(config, op_name);
  const OpInfo info = info_of(config, types, op);
  const std::vector<int32_t> tokens = sizes.tokens.empty() ? default_tokens(op.scope, on_gpu) : sizes.tokens;
  const std::vector<int32_t> contexts = sizes.contexts.empty() ? default_contexts(on_gpu) : sizes.contexts;
  std::vector<KernelCase> cases;
  const auto add = [&](int32_t m, int32_t sequences, int32_t context,
                       SampleKind sampling = SampleKind::greedy, const AttentionKind* kind = nullptr) {
    OpInfo of_case = info;
    if (kind != nullptr) {
      of_case.kv_heads = kind->kv_heads;
      of_case.head_size = kind->head_size;
      if (!info.v_in_k) of_case.v_head_size = kind->head_size;
      of_case.window = kind->window;
    }
    cases.push_back({.info = std::move(of_case),
                     .tokens = m,
                     .sequences = sequences,
                     .context = context,
                     .sampling = sampling,
                     .norm_eps = config.norm_eps,
                     .rotary_size = config.rotary_size_of(layer_of_cases(config)),
                     .logit_cap = config.attention_cap,
                     .pairing = config.architecture.rope_pairing});
  };
  const auto add_attention = [&](int32_t m, int32_t sequences, int32_t context) {
    for (const AttentionKind& kind : kinds_in(config, context))
      add(m, sequences, context, SampleKind::greedy, &kind);
  };
  for (const int32_t m : tokens) {
    if (op.kind == OpKind::attention && op.scope == TokenScope::decode) {
      for (const int32_t context : contexts) {
        if (int64_t{m} * context > kMostCachedTokens) continue;
        add_attention(m, m, context);
      }
    } else if (op.kind == OpKind::attention) {  // whole prompts: one, or four that share the tokens
      for (const int32_t sequences : {1, 4}) {
        if (m % sequences == 0) add_attention(m, sequences, m / sequences);
      }
    } else if (op.kind == OpKind::sample) {
      for (const SampleKind sampling : kSampleKinds)
        add(m, 1, m, sampling);
    } else {
      add(m, 1, m);
    }
  }
  return cases;
}

std::vector<std::string> kernel_tensor_names(const ModelSource& source, std::string_view op) {
  const ModelConfig& config = source.config();
  const int32_t layer = layer_of_cases(config);
  const auto of_layer = [&](std::vector<std::string> parts) {
    for (std::string& part : parts)
      part = fmt::format("blk.{}.{}.weight", layer, part);
    return parts;
  };
  if (op == "embed") return {"token_embd.weight"};
  if (op == "lm_head")
    return {source.find_tensor("output.weight") != nullptr ? "output.weight" : "token_embd.weight"};
  if (op == "rms_norm") {
    const bool is_before = config.architecture.norm_placement != NormPlacement::after;
    return of_layer({is_before ? "attn_norm" : "post_attention_norm"});
  }
  if (op == "qkv" && config.is_latent())
    return of_layer({config.latent.q_rank > 0 ? "attn_q_a" : "attn_q", "attn_kv_a_mqa"});
  if (op == "qkv" && config.values_are_keys(layer)) return of_layer({"attn_q", "attn_k"});
  if (op == "qkv") return of_layer({"attn_q", "attn_k", "attn_v"});
  if (op == "q_b") return of_layer({"attn_q_b"});
  if (op == "latent_kv_write") return of_layer({"attn_kv_a_norm"});
  if (op == "attn_k_b" || op == "attn_v_b") return of_layer({std::string(op)});
  if (op == "rope_kv_write" && config.architecture.qk_norm == QkNorm::head)
    return of_layer({"attn_q_norm", "attn_k_norm"});
  if (op == "attn_output") return of_layer({"attn_output"});
  if (op == "gate_up_swiglu") return of_layer({"ffn_gate", "ffn_up"});
  if (op == "ffn_down") return of_layer({"ffn_down"});
  if (op == "moe_router") return of_layer({"ffn_gate_inp"});
  if (op == "moe_gate_up_swiglu") return of_layer({"ffn_gate_exps", "ffn_up_exps"});
  if (op == "moe_down") return of_layer({"ffn_down_exps"});
  return {};
}

std::vector<HostTensor> kernel_tensors(const ModelSource& source, std::string_view op) {
  std::vector<HostTensor> tensors;
  for (const std::string& tensor_name : kernel_tensor_names(source, op)) {
    const HostTensor* tensor = source.find_tensor(tensor_name);
    if (tensor == nullptr) fail<FileError>("{}: tensor {} is missing", source.name(), tensor_name);
    tensors.push_back(*tensor);
  }
  return tensors;
}

}  // namespace minfer
