#include <algorithm>

#include "kernels/program/operands.h"
#include "kernels/target.h"

namespace minfer {
namespace {

/// An op that multiplies one x with weights.
struct Product {
  Tensor* x = nullptr;  ///< null: the op is no such product
  WeightList weights = {};
  FrontNorm* norm = nullptr;
  bool gives_f32 = false;
  bool gates = false;
};

Product product_of(OpArgs& args) {
  if (auto* linear = std::get_if<LinearArgs>(&args))
    return {&linear->x, linear->weights, &linear->norm, linear->out.dtype == DType::f32};
  if (auto* pair = std::get_if<GateUpArgs>(&args))
    return {&pair->x, {pair->gate, pair->up}, &pair->norm, false, true};
  return {};
}

/// The ops that write and read a value.
struct Users {
  std::vector<Op*> writers, readers;
};

std::vector<Users> users_of_values(Program& program) {
  std::vector<Users> users(program.values.size());
  const auto add = [](std::vector<Op*>& ops, Op& op) {
    if (ops.empty() || ops.back() != &op) ops.push_back(&op);
  };
  for (std::vector<Op>* ops : {&program.body, &program.head}) {
    for (Op& op : *ops) {
      for_each_value(op.args, [&](Use use, const auto& operand) {
        Users& of_value = users[static_cast<size_t>(operand.value)];
        if (use != Use::write) add(of_value.readers, op);
        if (use != Use::read) add(of_value.writers, op);
      });
    }
  }
  return users;
}

/// The size of the heads that an op writes in FP8; 0: it has no heads; -1: it cannot write FP8.
int32_t fp8_heads_of(const OpArgs& args) {
  if (const auto* norm = std::get_if<NormArgs>(&args)) return norm->is_plain_rms() ? 0 : -1;
  if (std::holds_alternative<GateUpArgs>(args)) return 0;
  if (const auto* attention = std::get_if<AttentionArgs>(&args)) return attention->kv.value_size();
  const auto* gate = std::get_if<HeadGateArgs>(&args);
  // A head gate to FP8 reads gates by fours, and a row of gates ends with two numbers of each head.
  if (gate == nullptr || gate->x.value == gate->out.value || gate->heads % 2 != 0) return -1;
  return static_cast<int32_t>(gate->out.cols / gate->heads);
}

/// A value may be FP8 if a single product reads it and takes FP8, and if every op that writes it can write FP8.
bool may_be_fp8(const Users& users, const Target& target, int64_t tokens) {
  if (users.readers.size() != 1) return false;
  const Product product = product_of(users.readers.front()->args);
  if (product.x == nullptr || !(product.gives_f32 || product.gates)) return false;
  return std::ranges::all_of(users.writers, [&](const Op* op) {
    const int32_t heads = fp8_heads_of(op->args);
    return heads >= 0 && target.takes_fp8(product.weights, tokens, heads);
  });
}

void use_fp8(Program& program, const Target& target, int64_t tokens) {
  std::vector<bool> is_fp8;
  for (const Users& users : users_of_values(program))
    is_fp8.push_back(may_be_fp8(users, target, tokens));
  const auto of_value = [&](const Tensor& tensor) { return is_fp8[static_cast<size_t>(tensor.value)]; };
  for (const Op& op : program.body) {  // gate and up write the type that they read
    const auto* pair = std::get_if<GateUpArgs>(&op.args);
    if (pair == nullptr || of_value(pair->x) == of_value(pair->out)) continue;
    is_fp8[static_cast<size_t>(pair->x.value)] = is_fp8[static_cast<size_t>(pair->out.value)] = false;
  }
  for (Op& op : program.body) {
    for_each_value(op.args, [&](Use, auto& operand) {
      if constexpr (requires { operand.dtype; }) {
        if (of_value(operand)) operand.dtype = DType::fp8;
      }
    });
  }
}

/// If a product directly follows the norm of its x and is its only reader, the product takes x before the norm.
void move_norms_into_products(Program& program, const Target& target, int64_t tokens) {
  const std::vector<Users> users = users_of_values(program);
  std::vector<Op> body;
  for (Op& op : program.body) {
    const Product product = product_of(op.args);
    const auto* norm = body.empty() ? nullptr : std::get_if<NormArgs>(&body.back().args);
    if (product.x != nullptr && norm != nullptr && norm->is_plain_rms() && norm->x.stride == norm->x.cols &&
        product.x->value == norm->out.value && product.x->cols == norm->out.cols &&
        users[static_cast<size_t>(norm->out.value)].readers.size() == 1 &&
        target.takes_norm(product.weights, tokens)) {
      *product.norm = {norm->weight, norm->eps};
      *product.x = norm->x;
      body.pop_back();
    }
    body.push_back(std::move(op));
  }
  program.body = std::move(body);
}

}  // namespace

Program fuse(Program program, const Target& target, int64_t tokens) {
  move_norms_into_products(program, target, tokens);
  use_fp8(program, target, tokens);
  return program;
}

}  // namespace minfer
