#include <algorithm>
#include <deque>

#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "models/decoder/decoder.h"
#include "models/decoder/weights/weights.h"
#include "server/bench/bench_kernels.h"

namespace minfer {
namespace {

constexpr int64_t kMostCachedTokens = int64_t{1} << 19;
/// There is at most one row of logits for each sequence, and a step has a few hundred sequences.
constexpr int32_t kMostSequences = 512;

/// Keeps which tensor each weight is.
class TensorTarget : public Target {
 public:
  explicit TensorTarget(DType activation) : activation_(activation) {}
  BackendInfo info() const override {
    return {.name = "none", .device = "none", .activation_dtype = activation_};
  }
  Weight load(const HostTensor& tensor) override {
    const HostTensor& kept = tensors_.emplace_back(tensor);
    return {&kept, tensor.loaded_dtype(), tensor.count, tensor.rows, tensor.cols};
  }
  static const HostTensor& tensor_of(const Weight& weight) {
    return *static_cast<const HostTensor*>(weight.data);
  }

 private:
  DType activation_;
  std::deque<HostTensor> tensors_;
};

using Weights = std::optional<std::vector<Weight>>;

/// The weights that a measured op reads; none: it is not measured.
struct WeightsOf {
  Weights operator()(const EmbedArgs& args) const { return {{args.table}}; }
  Weights operator()(const NormArgs& args) const {
    return args.is_plain_rms() ? Weights{{args.weight}} : std::nullopt;
  }
  Weights operator()(const LinearArgs& args) const { return {{args.weights.begin(), args.weights.end()}}; }
  Weights operator()(const GateUpArgs& args) const { return {{args.gate, args.up}}; }
  Weights operator()(const RopeKvWriteArgs& args) const {
    return args.q_has_gate || args.kv.v_in_k ? std::nullopt : Weights{{args.q_norm, args.k_norm}};
  }
  Weights operator()(const LatentKvWriteArgs& args) const { return {{args.kv_norm}}; }
  Weights operator()(const AttentionArgs&) const { return Weights{std::in_place}; }
  Weights operator()(const HeadLinearArgs& args) const { return {{args.weight}}; }
  Weights operator()(const MoeRouteArgs&) const { return Weights{std::in_place}; }
  Weights operator()(const MoeGateUpArgs& args) const { return {{args.gate, args.up}}; }
  Weights operator()(const MoeDownArgs& args) const { return {{args.down}}; }
  Weights operator()(const GatherRowsArgs&) const { return Weights{std::in_place}; }
  template <class Args>
  Weights operator()(const Args&) const {
    return std::nullopt;
  }
};

/// A layer with attention, and with experts where the model has them. llama.cpp's mixes give the layers of the first eighth more bits.
int32_t layer_of_cases(const ModelConfig& config) {
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const int32_t layer = (config.num_layers / 8 + i) % config.num_layers;
    if (config.attends(layer) && (!config.is_moe() || config.layer(layer).has_experts)) return layer;
  }
  fail<FileError>("no layer of the model attends and has experts: no cases for its ops");
}

/// The kinds of attention of layers in a context, each once; those that see all of it come first.
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
  if (scope == TokenScope::decode) return powers_of_two(1, 256);
  if (scope == TokenScope::logits) return powers_of_two(1, kMostSequences);
  return powers_of_two(scope == TokenScope::prefill ? 64 : 1, 8192);
}

}  // namespace

KernelOps::KernelOps(const ModelSource& source, const KernelTypes& types, std::optional<DType> quantization)
    : config_(source.config()), layer_(layer_of_cases(config_)) {
  TensorTarget target(types.activation);
  ModelWeights weights = load_weights(source, target, {}, quantization);
  const DecoderPrograms programs(
      config_, weights, {}, target,
      {.max_tokens = 2, .logit_slice = 2, .max_positions = config_.context_length});
  converted_ = std::move(weights.converted);
  const Program& program = programs.steps.variants.back();
  std::vector<Weights> weights_by_op(program.table.size());
  for (const std::vector<Op>* part : {&program.body, &program.head}) {
    for (const Op& op : *part)
      weights_by_op[static_cast<size_t>(op.id)] = std::visit(WeightsOf(), op.args);
  }
  for (size_t i = 0; i < program.table.size(); ++i) {
    MeasuredOp op{program.table[i], {}};
    OpInfo& info = op.info;
    if (info.layer >= 0 && info.layer != layer_) continue;
    if (info.kind == OpKind::rms_norm) info.name = "rms_norm";
    const bool is_sample = info.kind == OpKind::sample;  // which the engine runs
    if ((!weights_by_op[i] && !is_sample) || std::ranges::count(names(), info.name) > 0) continue;
    info.kv_dtype = types.kv;
    if (!is_sample) {
      for (const Weight& weight : *weights_by_op[i])
        if (weight) op.tensors.push_back(TensorTarget::tensor_of(weight));
    }
    ops_.push_back(std::move(op));
  }
}

std::vector<std::string> KernelOps::names() const {
  std::vector<std::string> names;
  for (const MeasuredOp& op : ops_)
    names.push_back(op.info.name);
  return names;
}

const KernelOps::MeasuredOp& KernelOps::find(std::string_view op) const {
  const auto found = std::ranges::find_if(ops_, [&](const MeasuredOp& one) { return one.info.name == op; });
  if (found == ops_.end())
    fail("--op: \"{}\" is no op of this model, expected one of {}", op, fmt::join(names(), ", "));
  return *found;
}

std::vector<KernelCase> KernelOps::cases(std::string_view op, const KernelSizes& sizes, bool on_gpu) const {
  const OpInfo& info = find(op).info;
  const std::vector<int32_t> tokens =
      sizes.tokens.empty() ? default_tokens(info.scope, on_gpu) : sizes.tokens;
  const std::vector<int32_t> contexts = !sizes.contexts.empty() ? sizes.contexts
                                        : on_gpu                ? powers_of_two(512, 32768, 4)
                                                                : powers_of_two(256, 1024, 4);
  const KernelCase common{.info = info,
                          .norm_eps = config_.norm_eps,
                          .rotary_size = config_.rotary_size_of(layer_),
                          .logit_cap = config_.attention_cap,
                          .pairing = config_.architecture.rope_pairing};
  std::vector<KernelCase> cases;
  const auto add = [&](int32_t m, int32_t sequences, int32_t context) -> KernelCase& {
    KernelCase& added = cases.emplace_back(common);
    added.tokens = m;
    added.sequences = sequences;
    added.context = context;
    return added;
  };
  const auto add_attention = [&](int32_t m, int32_t sequences, int32_t context) {
    for (const AttentionKind& kind : kinds_in(config_, context)) {
      OpInfo& of_case = add(m, sequences, context).info;
      of_case.kv_heads = kind.kv_heads;
      of_case.head_size = kind.head_size;
      if (!info.v_in_k) of_case.v_head_size = kind.head_size;
      of_case.window = kind.window;
      of_case.most_chosen = 0;
    }
  };
  for (const int32_t m : tokens) {
    if (info.kind == OpKind::attention && info.scope == TokenScope::decode) {
      for (const int32_t context : contexts)
        if (int64_t{m} * context <= kMostCachedTokens) add_attention(m, m, context);
    } else if (info.kind == OpKind::attention) {  // whole prompts: one, or four that share the tokens
      for (const int32_t sequences : {1, 4})
        if (m % sequences == 0) add_attention(m, sequences, m / sequences);
    } else if (info.kind == OpKind::sample) {
      for (const SampleKind sampling : kSampleKinds)
        add(m, 1, m).sampling = sampling;
    } else {
      add(m, 1, m);
    }
  }
  return cases;
}

}  // namespace minfer
