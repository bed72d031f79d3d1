#pragma once

#include "kernels/program/program.h"

namespace minfer {

enum class Use : uint8_t { read, write, update };

/// Calls f(Use, operand) for each Tensor or Numbers in an op's arguments.
template <class Args, class F>
void for_each_operand(Args& args, F&& f) {
  using Plain = std::remove_const_t<Args>;
  const auto write_or_add = [](bool adds) { return adds ? Use::update : Use::write; };
  if constexpr (std::is_same_v<Plain, OpArgs>) {
    std::visit([&](auto& of_op) { for_each_operand(of_op, f); }, args);
  } else if constexpr (std::is_same_v<Plain, EmbedArgs>) {
    f(Use::write, args.out);
  } else if constexpr (std::is_same_v<Plain, NormArgs> || std::is_same_v<Plain, LinearArgs>) {
    f(Use::read, args.x);
    f(write_or_add(args.add_to_out), args.out);
  } else if constexpr (std::is_same_v<Plain, RopeKvWriteArgs>) {
    f(Use::update, args.qkv);
    f(Use::write, args.q_out);
  } else if constexpr (std::is_same_v<Plain, LatentKvWriteArgs>) {
    f(Use::update, args.q);
    f(Use::update, args.kv);
    f(Use::write, args.q_out);
  } else if constexpr (std::is_same_v<Plain, AttentionArgs>) {
    f(Use::read, args.qkv);
    f(Use::read, args.chosen);
    f(Use::write, args.out);
  } else if constexpr (std::is_same_v<Plain, ChooseKeysArgs>) {
    f(Use::read, args.q);
    f(Use::read, args.weights);
    f(Use::write, args.chosen);
  } else if constexpr (std::is_same_v<Plain, MoeRouteArgs>) {
    f(Use::read, args.logits);
    f(Use::write, args.expert_ids);
    f(Use::write, args.expert_weights);
  } else if constexpr (std::is_same_v<Plain, MoeGateUpArgs>) {
    f(Use::read, args.x);
    f(Use::read, args.expert_ids);
    f(Use::read, args.input_weights);
    f(Use::write, args.out);
  } else if constexpr (std::is_same_v<Plain, MoeDownArgs>) {
    f(Use::read, args.hidden);
    f(Use::read, args.expert_ids);
    f(Use::read, args.expert_weights);
    f(write_or_add(args.add_to_out), args.out);
  } else if constexpr (std::is_same_v<Plain, DeltaRuleArgs>) {
    f(Use::read, args.qkv);
    f(Use::read, args.gates);
    f(Use::write, args.out);
    f(Use::update, args.alphas);
  } else if constexpr (std::is_same_v<Plain, MambaScanArgs>) {
    f(Use::read, args.xbc);
    f(Use::read, args.dt);
    f(Use::read, args.gate);
    f(Use::write, args.out);
  } else if constexpr (std::is_same_v<Plain, HeadGateArgs>) {
    f(Use::read, args.x);
    f(Use::read, args.gate);
    f(Use::write, args.out);
  } else if constexpr (std::is_same_v<Plain, MixStreamsArgs>) {
    f(Use::read, args.routed);
    f(Use::update, args.streams);
    f(write_or_add(args.kind == MixStreamsArgs::Kind::correct), args.x);
  } else if constexpr (std::is_same_v<Plain, AllReduceArgs>) {
    f(Use::read, args.part);
    f(write_or_add(args.add_to_x), args.x);
    f(Use::write, args.normed);
  } else if constexpr (std::is_same_v<Plain, GatherColumnsArgs>) {
    f(Use::read, args.part);
    f(Use::write, args.out);
  } else {
    f(Use::read, args.x);
    f(Use::write, args.out);
  }
}

/// The same, only for operands that have a value.
template <class Args, class F>
void for_each_value(Args& args, F&& f) {
  for_each_operand(args, [&](Use use, auto& operand) {
    if (operand.value >= 0) f(use, operand);
  });
}

}  // namespace minfer
