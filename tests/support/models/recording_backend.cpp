#include "tests/support/models/recording_backend.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace minfer::test {

std::string RecordingBackend::take_recording() {
  std::string text;
  for (const std::string& line : std::exchange(lines_, {}))
    text += line + "\n";
  written_.clear();
  return text;
}

Buffer RecordingBackend::allocate(size_t bytes, std::string_view what) {
  Buffer buffer(::operator new(bytes + 64, std::align_val_t(64)), bytes,
                [](void* data) { ::operator delete(data, std::align_val_t(64)); });
  buffers_[buffer.data()] = what;
  return buffer;
}

Weight RecordingBackend::load(const HostTensor& tensor) {
  Weight weight{tensor.data, tensor.dtype, tensor.count, tensor.rows, tensor.cols};
  if (device_.takes_fp8 && tensor.rows > 1 && tensor.name.starts_with("blk.")) weight.dtype = DType::fp8;
  weights_[tensor.data] = tensor.name;
  return weight;
}

LaunchedStep RecordingBackend::launch_step(const StepArgs& step, const ForwardPass& forward) {
  batch_ = step.batch;
  forward(step.batch);
  for (int32_t row = 1; step.more_logits && row < step.batch.num_logit_rows; ++row)
    step.more_logits(step.batch, row);
  return {};
}

bool RecordingBackend::takes_fp8(std::span<const Weight> weights, int64_t tokens, int32_t head_size) const {
  return device_.takes_fp8 && tokens > 1 && head_size % 16 == 0 &&
         std::ranges::all_of(weights, [](const Weight& w) { return w.dtype == DType::fp8 && w.count == 1; });
}

bool RecordingBackend::takes_norm(std::span<const Weight> weights, int64_t tokens) const {
  return device_.takes_norms && tokens == 1 &&
         std::ranges::all_of(weights, [](const Weight& w) { return w.count == 1; });
}

void RecordingBackend::begin(OpId op) {
  const OpInfo& info = ops_[static_cast<size_t>(op)];
  lines_.push_back(fmt::format("{} {} {}:", op, info.name, info.layer));
}

std::string RecordingBackend::place_of(const void* data) const {
  const auto* at = static_cast<const std::byte*>(data);
  for (auto write = written_.rbegin(); write != written_.rend(); ++write) {
    if (at >= write->begin && at < write->end)
      return fmt::format("#{}.{}+{}", write->line, write->name, at - write->begin);
  }
  if (const auto weight = weights_.find(data); weight != weights_.end()) return weight->second;
  auto buffer = buffers_.upper_bound(data);
  return buffer == buffers_.begin() ? "?" : std::prev(buffer)->second;
}

void RecordingBackend::add(std::string_view name, const Tensor& tensor) {
  if (tensor.data == nullptr) return;
  lines_.back() += fmt::format(" {}={}[{},{},{}]@{}", name, minfer::name(tensor.dtype), tensor.rows,
                               tensor.cols, tensor.stride, place_of(tensor.data));
}

void RecordingBackend::add(std::string_view name, const Weight& weight) {
  if (!weight) return;
  lines_.back() += fmt::format(" {}={}[{},{},{}]@{}", name, minfer::name(weight.dtype), weight.count,
                               weight.rows, weight.cols, place_of(weight.data));
}

void RecordingBackend::add(std::string_view name, std::span<const Weight> weights) {
  for (size_t i = 0; i < weights.size(); ++i)
    add(fmt::format("{}{}", name, i), weights[i]);
}

void RecordingBackend::add(std::string_view name, const FrontNorm& norm) {
  if (!norm.weight) return;
  add(name, norm.weight);
  add_number("eps", norm.eps);
}

void RecordingBackend::add(std::string_view name, const KvLayer& kv) {
  lines_.back() += fmt::format(" {}={}[{},{},{},{},{}]", name, minfer::name(kv.dtype), kv.block_size,
                               kv.kv_heads, kv.head_size, kv.v_head_size, kv.v_in_k);
  const auto* memory = static_cast<const std::byte*>(std::prev(buffers_.upper_bound(kv.k))->first);
  lines_.back() += fmt::format("k+{}v+{}", static_cast<const std::byte*>(kv.k) - memory,
                               static_cast<const std::byte*>(kv.v) - memory);
}

void RecordingBackend::add(std::string_view name, const AttentionWindow& window) {
  lines_.back() += fmt::format(" {}={}{}", name, window.keys, window.chunked ? "chunked" : "");
}

void RecordingBackend::add(std::string_view name, const ForwardBatch& batch) {
  lines_.back() += fmt::format(" {}={}", name, batch.slots == batch_.slots ? "all" : "windows");
}

void RecordingBackend::add(std::string_view name, const RecurrentLayer& state) {
  const auto* memory = static_cast<const std::byte*>(std::prev(buffers_.upper_bound(state.conv))->first);
  lines_.back() +=
      fmt::format(" {}=conv+{}delta+{}", name, reinterpret_cast<const std::byte*>(state.conv) - memory,
                  reinterpret_cast<const std::byte*>(state.delta) - memory);
}

void RecordingBackend::add_number(std::string_view name, double value) {
  lines_.back() += fmt::format(" {}={}", name, value);
}

void RecordingBackend::add_memory(std::string_view name, const void* data) {
  if (data != nullptr) lines_.back() += fmt::format(" {}@{}", name, place_of(data));
}

void RecordingBackend::writes(std::string_view name, const Tensor& tensor) {
  if (tensor.data == nullptr) return;
  lines_.back() += fmt::format(" -> {}={}[{},{},{}]", name, minfer::name(tensor.dtype), tensor.rows,
                               tensor.cols, tensor.stride);
  const auto* begin = static_cast<const std::byte*>(tensor.data);
  const auto elements = static_cast<size_t>(tensor.rows * tensor.stride);
  const size_t element_bytes =
      tensor.dtype == DType::fp8 ? 1 : row_bytes(tensor.dtype, 1);  // FP8: only the codes
  written_.push_back({begin, begin + elements * element_bytes, lines_.size() - 1, std::string(name)});
}

void RecordingBackend::writes(std::string_view name, const void* data, size_t bytes) {
  lines_.back() += fmt::format(" -> {}={}", name, bytes);
  const auto* begin = static_cast<const std::byte*>(data);
  written_.push_back({begin, begin + bytes, lines_.size() - 1, std::string(name)});
}

void RecordingBackend::embed(OpId op, const EmbedArgs& args) {
  begin(op);
  add("table", args.table);
  add_number("first", args.first_token);
  add_number("vocab", args.vocab_size);
  add_number("scale", args.scale);
  writes("out", args.out);
}

void RecordingBackend::norm(OpId op, const NormArgs& args) {
  begin(op);
  add("x", args.x);
  add_number("kind", static_cast<int>(args.kind));
  add("weight", args.weight);
  add("bias", args.bias);
  add_number("eps", args.eps);
  if (args.kind == NormKind::cut) add_number("cut", args.cut);
  add_number("scale", args.scale);
  if (args.add_to_out) add("to", args.out);
  writes("out", args.out);
}

void RecordingBackend::linear(OpId op, const LinearArgs& args) {
  begin(op);
  add("x", args.x);
  add("w", args.weights);
  add("b", args.biases);
  add("norm", args.norm);
  if (args.add_to_out) add("to", args.out);
  writes("out", args.out);
}

void RecordingBackend::gate_up_swiglu(OpId op, const GateUpArgs& args) {
  begin(op);
  add("x", args.x);
  add("gate", args.gate);
  add("up", args.up);
  add("gate_bias", args.gate_bias);
  add("up_bias", args.up_bias);
  add_number("activation", static_cast<int>(args.activation));
  add("norm", args.norm);
  writes("out", args.out);
}

void RecordingBackend::activate(OpId op, const ActivateArgs& args) {
  begin(op);
  add("x", args.x);
  add_number("kind", static_cast<int>(args.activation.kind));
  add_number("cap", args.activation.cap);
  writes("out", args.out);
}

void RecordingBackend::rope_kv_write(OpId op, const ForwardBatch& batch, const RopeKvWriteArgs& args) {
  begin(op);
  add("batch", batch);
  add("qkv", args.qkv);
  add_number("heads", args.heads);
  add_number("rotary", args.rotary_size);
  add_number("pairing", static_cast<int>(args.pairing));
  add_memory("angles", args.cos_sin);
  add("q_norm", args.q_norm);
  add("k_norm", args.k_norm);
  add_number("layer_norms", args.layer_norms);
  add_number("eps", args.norm_eps);
  add("kv", args.kv);
  add_memory("q_scale", args.q_scale);
  add("v_norm", args.v_norm);
  add_number("v_is_k", args.v_is_k);
  add_number("q_has_gate", args.q_has_gate);
  if (args.norms_last) add_number("norms_last", 1);
  writes("q", args.q_out.data != nullptr ? args.q_out : args.qkv);
}

void RecordingBackend::latent_kv_write(OpId op, const ForwardBatch& batch, const LatentKvWriteArgs& args) {
  begin(op);
  add("batch", batch);
  add("q", args.q);
  add("kv", args.kv);
  add_number("heads", args.heads);
  add_number("rotary", args.rotary_size);
  add_number("pairing", static_cast<int>(args.pairing));
  add_memory("angles", args.cos_sin);
  add("kv_norm", args.kv_norm);
  add_number("eps", args.norm_eps);
  add("kv_layer", args.kv_layer);
  if (args.q_scale != nullptr) add_memory("q_scale", args.q_scale);
  writes("q", args.q_out);
}

void RecordingBackend::attention(OpId op, const ForwardBatch& batch, const AttentionArgs& args) {
  begin(op);
  add("batch", batch);
  add("q", args.qkv);
  add_number("heads", args.heads);
  add_number("scale", args.scale);
  add("kv", args.kv);
  add_number("first", args.first_sequence);
  add_number("sequences", args.num_sequences);
  add("window", args.window);
  add_number("cap", args.logit_cap);
  add("sinks", args.sinks);
  if (args.most_chosen > 0) {
    lines_.back() += fmt::format(" chosen={}", place_of(args.chosen));
    add_number("most", args.most_chosen);
  }
  writes("out", args.out);
}

void RecordingBackend::head_linear(OpId op, const HeadLinearArgs& args) {
  begin(op);
  add("x", args.x);
  add("w", args.weight);
  if (args.out.cols > args.weight.count * args.weight.rows) add("to", args.out);
  writes("out", args.out);
}

void RecordingBackend::moe_route(OpId op, const MoeRouteArgs& args) {
  begin(op);
  add("logits", args.logits);
  add_number("used", args.experts_used);
  const ExpertChoice& choice = args.choice;
  lines_.back() += fmt::format(" choice={},{},{},{},{},{}", static_cast<int>(choice.score), choice.normalise,
                               choice.scale, choice.groups, choice.groups_used, choice.group_best);
  add("bias", args.bias);
  const auto bytes = static_cast<size_t>(args.logits.rows * args.experts_used) * 4;
  writes("ids", args.expert_ids, bytes);
  writes("weights", args.expert_weights, bytes);
}

void RecordingBackend::moe_gate_up_swiglu(OpId op, const MoeGateUpArgs& args) {
  begin(op);
  add("x", args.x);
  add("gate", args.gate);
  add("up", args.up);
  add_memory("ids", args.expert_ids);
  add_number("used", args.experts_used);
  add_number("activation", static_cast<int>(args.activation));
  add("gate_bias", args.gate_bias);
  add("up_bias", args.up_bias);
  add_memory("weights", args.input_weights);
  writes("out", args.out);
}

void RecordingBackend::moe_down(OpId op, const MoeDownArgs& args) {
  begin(op);
  add("hidden", args.hidden);
  add("down", args.down);
  add_memory("ids", args.expert_ids);
  add_memory("weights", args.expert_weights);
  add_number("used", args.experts_used);
  add("bias", args.bias);
  add_number("follows", args.follows_gate_up);
  if (args.add_to_out) add("to", args.out);
  writes("out", args.out);
}

void RecordingBackend::delta_conv(OpId op, const ForwardBatch& batch, const DeltaConvArgs& args) {
  begin(op);
  add("batch", batch);
  add("x", args.x);
  add("w", args.weight);
  if (args.bias) add("b", args.bias);
  add("state", args.state);
  add_number("channels", args.shape.channels());
  if (!args.norms_heads) add_number("norms", 0);
  writes("out", args.out);
}

void RecordingBackend::delta_rule(OpId op, const ForwardBatch& batch, const DeltaRuleArgs& args) {
  begin(op);
  add("batch", batch);
  add("qkv", args.qkv);
  add("gates", args.gates);
  add("alphas", args.alphas);
  add("dt_bias", args.dt_bias);
  add("decay", args.decay);
  add("state", args.state);
  writes("out", args.out);
}

void RecordingBackend::head_gate(OpId op, const HeadGateArgs& args) {
  begin(op);
  add("x", args.x);
  add("gate", args.gate);
  add_number("heads", args.heads);
  add_number("stride", static_cast<double>(args.gate_stride));
  add_number("function", static_cast<int>(args.function));
  add("norm", args.norm);
  add_number("eps", args.norm_eps);
  writes("out", args.out);
}

void RecordingBackend::short_conv(OpId op, const ForwardBatch& batch, const ShortConvArgs& args) {
  begin(op);
  add("batch", batch);
  add("x", args.x);
  add("w", args.weight);
  add("b", args.bias);
  add("state", args.state);
  writes("out", args.out);
}

void RecordingBackend::hidden_rows(OpId op, const ForwardBatch& batch, const HiddenRowsArgs& args) {
  begin(op);
  add("batch", batch);
  add("x", args.x);
  if (args.out.cols > 0) writes("out", args.out);
}

void RecordingBackend::choose_keys(OpId op, const ForwardBatch& batch, const ChooseKeysArgs& args) {
  begin(op);
  add("batch", batch);
  add("q", args.q);
  add("weights", args.weights);
  add_number("heads", args.heads);
  add_number("scale", args.scale);
  add("keys", args.keys);
  add_number("most", args.most);
  writes("chosen", args.chosen, static_cast<size_t>(args.q.rows * args.most) * 4);
}

void RecordingBackend::mamba_scan(OpId op, const ForwardBatch& batch, const MambaScanArgs& args) {
  begin(op);
  add("batch", batch);
  add("xbc", args.xbc);
  add("dt", args.dt);
  add("gate", args.gate);
  add("dt_bias", args.dt_bias);
  add("decay", args.decay);
  add("skip", args.skip);
  add("state", args.state);
  writes("out", args.out);
}

void RecordingBackend::mix_streams(OpId op, const MixStreamsArgs& args) {
  begin(op);
  add_number("kind", static_cast<double>(args.kind));
  add("routed", args.routed);
  add_number("scale", args.scale);
  add("coefs", args.coefs);
  add("w", args.weight);
  add("streams", args.streams);
  add("x", args.x);
  writes("streams", args.streams);
  writes("x", args.x);
}

void RecordingBackend::spread_columns(OpId op, const SpreadColumnsArgs& args) {
  begin(op);
  add("x", args.x);
  add("columns", args.columns);
  writes("out", args.out);
}

void RecordingBackend::gather_rows(OpId op, const Tensor& x, const int32_t* rows, const Tensor& out) {
  begin(op);
  add("x", x);
  add_number("rows", static_cast<double>(rows - batch_.logit_rows));
  writes("out", out);
}

void RecordingBackend::all_reduce(OpId op, const AllReduceArgs& args) {
  begin(op);
  add("part", args.part);
  if (args.add_to_x) add("to", args.x);
  add("norm", args.norm);
  add_number("eps", args.norm_eps);
  writes("x", args.x);
  if (args.norm) writes("normed", args.normed);
}

void RecordingBackend::gather_columns(OpId op, const Tensor& part, const Tensor& out) {
  begin(op);
  add("part", part);
  writes("out", out);
}

}  // namespace minfer::test
