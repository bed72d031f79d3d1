#include "kernels/backend.h"
#include "kernels/program/operands.h"

namespace minfer {
namespace {

/// Runs one op, with the batch as the op sees it.
struct Runner {
  Backend& backend;
  const ForwardBatch& batch;
  RowSlice slice;
  OpId id;

  void operator()(EmbedArgs& args) const {
    args.token_ids = batch.token_ids;
    backend.embed(id, args);
  }
  void operator()(const NormArgs& args) const { backend.norm(id, args); }
  void operator()(const LinearArgs& args) const { backend.linear(id, args); }
  void operator()(const GateUpArgs& args) const { backend.gate_up_swiglu(id, args); }
  void operator()(const ActivateArgs& args) const { backend.activate(id, args); }
  void operator()(const RopeKvWriteArgs& args) const { backend.rope_kv_write(id, batch, args); }
  void operator()(const LatentKvWriteArgs& args) const { backend.latent_kv_write(id, batch, args); }
  void operator()(const AttentionArgs& args) const {
    if (args.num_sequences > 0) backend.attention(id, batch, args);
  }
  void operator()(const HeadLinearArgs& args) const { backend.head_linear(id, args); }
  void operator()(const MoeRouteArgs& args) const { backend.moe_route(id, args); }
  void operator()(const MoeGateUpArgs& args) const { backend.moe_gate_up_swiglu(id, args); }
  void operator()(const MoeDownArgs& args) const { backend.moe_down(id, args); }
  void operator()(const DeltaConvArgs& args) const { backend.delta_conv(id, batch, args); }
  void operator()(const DeltaRuleArgs& args) const { backend.delta_rule(id, batch, args); }
  void operator()(const HeadGateArgs& args) const { backend.head_gate(id, args); }
  void operator()(const ShortConvArgs& args) const { backend.short_conv(id, batch, args); }
  void operator()(const HiddenRowsArgs& args) const { backend.hidden_rows(id, batch, args); }
  void operator()(const MambaScanArgs& args) const { backend.mamba_scan(id, batch, args); }
  void operator()(const ChooseKeysArgs& args) const { backend.choose_keys(id, batch, args); }
  void operator()(const MixStreamsArgs& args) const { backend.mix_streams(id, args); }
  void operator()(const SpreadColumnsArgs& args) const { backend.spread_columns(id, args); }
  void operator()(const AllReduceArgs& args) const { backend.all_reduce(id, args); }
  void operator()(const GatherRowsArgs& args) const {
    backend.gather_rows(id, args.x, batch.logit_rows + slice.first, args.out);
  }
  void operator()(const GatherColumnsArgs& args) const { backend.gather_columns(id, args.part, args.out); }
};

/// Sets the sequences of attention: ops of decoding attend for the decoding sequences, ops of prompts for the others.
void set_sequences(AttentionArgs& args, TokenScope scope, const ForwardBatch& batch) {
  const bool decodes = scope == TokenScope::decode;
  args.first_sequence = decodes ? 0 : batch.num_decode_sequences;
  args.num_sequences =
      decodes ? batch.num_decode_sequences : batch.num_sequences - batch.num_decode_sequences;
}

}  // namespace

void run(const Program& program, std::vector<Op>& ops, Backend& backend, const ForwardBatch& batch,
         RowSlice slice) {
  const ForwardBatch of_windows = batch.of_windows();
  const ProgramLimits rows{batch.num_tokens, slice.count};
  for (Op& op : ops) {
    for_each_value(op.args, [&](Use, auto& operand) {
      if constexpr (requires { operand.rows; })
        operand.rows = operand.pieces * rows.rows_of(program.values[static_cast<size_t>(operand.value)]);
    });
    if (auto* attention = std::get_if<AttentionArgs>(&op.args))
      set_sequences(*attention, program.table[static_cast<size_t>(op.id)].scope, batch);
    std::visit(Runner{backend, op.windows ? of_windows : batch, slice, op.id}, op.args);
  }
}

}  // namespace minfer
