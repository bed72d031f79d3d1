#include "kernels/program/program.h"
#include "kernels/work.h"

namespace minfer {
namespace {

/// One row of a table: an op reads one for each token.
Weight row_of(Weight table) {
  table.rows = 1;
  return table;
}

class Description {
 public:
  explicit Description(OpInfo& info) : info_(info) {}

  void operator()(const EmbedArgs& args) {
    set(OpKind::embed, args.out.cols, args.out.cols, {row_of(args.table)});
    info_.out_element_bytes = bytes_of(args.out);
  }
  void operator()(const NormArgs& args) {
    set(OpKind::rms_norm, args.x, args.out, {args.weight, args.bias});
    info_.in_features *= args.x.pieces;
    info_.out_features *= args.out.pieces;
    info_.add_to_out = args.add_to_out;
  }
  void operator()(const LinearArgs& args) {
    std::vector<Weight> weights(args.weights.begin(), args.weights.end());
    weights.insert(weights.end(), args.biases.begin(), args.biases.end());
    set(OpKind::linear, args.x, args.out, weights);
    info_.add_to_out = args.add_to_out;
  }
  void operator()(const GateUpArgs& args) {
    set(OpKind::gate_up_swiglu, args.x, args.out, {args.gate, args.up, args.gate_bias, args.up_bias});
  }
  void operator()(const ActivateArgs& args) { set(OpKind::activate, args.x, args.out); }
  void operator()(const RopeKvWriteArgs& args) {
    set(OpKind::rope_kv_write, args.qkv.cols, args.qkv.cols, {args.q_norm, args.k_norm, args.v_norm});
    set_bytes(args.qkv, args.q_out.value >= 0 ? args.q_out : args.qkv);
    info_.v_is_k = args.v_is_k;
    if (!args.kv.v_in_k) return;
    info_.heads = args.heads;  // keys by which others are chosen: not the layer's
    info_.kv_heads = args.kv.kv_heads;
    info_.head_size = info_.v_head_size = args.kv.head_size;
  }
  void operator()(const LatentKvWriteArgs& args) {
    set(OpKind::latent_kv_write, args.kv.cols, args.kv.cols, {args.kv_norm});
    set_bytes(args.kv, args.q_out);
    info_.rotary_size = args.rotary_size;
  }
  void operator()(const AttentionArgs& args) {
    info_.kind = OpKind::attention;
    if (args.window.keys > 0) info_.window = args.window;  // hidden positions are few
    info_.most_chosen = args.most_chosen;
    set_bytes(args.qkv, args.out);
  }
  void operator()(const ChooseKeysArgs& args) {
    set(OpKind::choose_keys, args.q.cols, args.most, {});
    info_.in_element_bytes = bytes_of(args.q);
    info_.heads = args.heads;
    info_.kv_heads = 1;
    info_.head_size = info_.v_head_size = args.keys.head_size;
    info_.most_chosen = args.most;
  }
  void operator()(const HeadLinearArgs& args) {
    const Weight& weight = args.weight;
    set(OpKind::head_linear, weight.count * weight.cols, weight.count * weight.rows, {weight});
    set_bytes(args.x, args.out);
  }
  void operator()(const MoeRouteArgs& args) {
    set(OpKind::moe_route, args.logits.cols, args.experts_used, {args.bias});
    info_.in_element_bytes = bytes_of(args.logits);
  }
  void operator()(const MoeGateUpArgs& args) {
    set(OpKind::moe_gate_up_swiglu, args.x, args.out,
        {args.gate, args.up, row_of(args.gate_bias), row_of(args.up_bias)});
  }
  void operator()(const MoeDownArgs& args) {
    set(OpKind::moe_down, args.hidden, args.out, {args.down, row_of(args.bias)});
    info_.add_to_out = args.add_to_out;
  }
  void operator()(const DeltaConvArgs& args) {
    set(OpKind::delta_conv, args.x, args.out, {args.weight, args.bias});
    info_.delta_net = args.shape;
  }
  void operator()(const DeltaRuleArgs& args) {
    set(OpKind::delta_rule, args.qkv, args.out, {args.dt_bias, args.decay});
    info_.delta_net = args.shape;
  }
  void operator()(const HeadGateArgs& args) { set(OpKind::head_gate, args.x, args.out, {args.norm}); }
  void operator()(const ShortConvArgs& args) {
    set(OpKind::short_conv, args.x, args.out, {args.weight, args.bias});
    info_.state_bytes = (args.weight.rows - 1) * args.weight.cols * int64_t{sizeof(float)};
  }
  void operator()(const HiddenRowsArgs& args) {
    const Tensor& rows = args.out.cols > 0 ? args.out : args.x;
    set(OpKind::hidden_rows, rows, rows);
  }
  void operator()(const MambaScanArgs& args) {
    set(OpKind::mamba_scan, args.xbc, args.out, {args.dt_bias, args.decay, args.skip});
    info_.delta_net = args.shape;
  }
  void operator()(const MixStreamsArgs& args) {
    set(OpKind::mix_streams, args.streams, args.x, {args.coefs, args.weight});
    info_.add_to_out = args.kind == MixStreamsArgs::Kind::correct;
  }
  void operator()(const SpreadColumnsArgs& args) {
    set(OpKind::spread_columns, args.x, args.out, {args.columns});
  }
  void operator()(const AllReduceArgs& args) {
    set(OpKind::all_reduce, args.x.cols, args.x.cols, {args.norm});
    info_.in_element_bytes = bytes_of(args.part);
    info_.add_to_out = args.add_to_x;
  }
  void operator()(const GatherRowsArgs& args) { set(OpKind::gather, args.x, args.out); }
  void operator()(const GatherColumnsArgs& args) {
    set(OpKind::all_gather, args.out.cols, args.out.cols, {});
    set_bytes(args.part, args.out);
  }

 private:
  static int32_t bytes_of(const Tensor& tensor) {
    return tensor.dtype == DType::fp8 ? 1 : static_cast<int32_t>(traits(tensor.dtype).block_bytes);
  }
  void set(OpKind kind, int64_t in, int64_t out, const std::vector<Weight>& weights) {
    info_.kind = kind;
    info_.in_features = in;
    info_.out_features = out;
    set_weights(info_, weights);
  }
  void set(OpKind kind, const Tensor& in, const Tensor& out, const std::vector<Weight>& weights = {}) {
    set(kind, in.cols, out.cols, weights);
    set_bytes(in, out);
    info_.fp8_products = (kind == OpKind::linear || kind == OpKind::gate_up_swiglu) && in.dtype == DType::fp8;
  }
  void set_bytes(const Tensor& in, const Tensor& out) {
    info_.in_element_bytes = bytes_of(in);
    info_.out_element_bytes = bytes_of(out);
  }

  OpInfo& info_;
};

}  // namespace

OpInfo describe(OpInfo info, const OpArgs& args) {
  std::visit(Description(info), args);
  return info;
}

}  // namespace minfer
