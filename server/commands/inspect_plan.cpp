#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "kernels/cuda/choice/op_plan.h"
#include "kernels/cuda/choice/planned_gpu.h"
#include "models/decoder/decoder.h"
#include "models/decoder/weights/weights.h"
#include "profiling/text/table.h"
#include "server/commands/inspect_report.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// Ops of one name that are computed alike.
struct PlannedOp {
  std::string name;
  int32_t layers = 0;
  cuda::OpPlan plan;

  auto kind() const { return std::tie(name, plan.kernel, plan.tile, plan.us); }
};

BatchShape shape_of(int32_t decode_sequences, int32_t prompt_tokens, int32_t context) {
  BatchShape shape;
  for (int32_t i = 0; i < decode_sequences; ++i)
    shape.add_sequence(true, context, 1, 1);
  if (prompt_tokens > 0) shape.add_sequence(false, prompt_tokens, prompt_tokens, 1);
  return shape;
}

/// All ops of a step of this shape that run, in order.
std::vector<PlannedOp> planned_ops(const Program& program, const BatchShape& shape) {
  std::vector<PlannedOp> ops;
  for (const std::vector<Op>* part : {&program.body, &program.head}) {
    for (const Op& op : *part) {
      const OpInfo& info = program.table[static_cast<size_t>(op.id)];
      const int32_t other_phase = info.scope == TokenScope::decode    ? shape.prefill_sequences
                                  : info.scope == TokenScope::prefill ? shape.decode_sequences
                                                                      : 0;
      if (other_phase > 0) continue;
      const PlannedOp planned{info.name, 1, cuda::plan_op(op.args, info, shape, cuda::kH200)};
      const auto alike = std::ranges::find(ops, planned.kind(), &PlannedOp::kind);
      alike == ops.end() ? ops.push_back(planned) : static_cast<void>(++alike->layers);
    }
  }
  return ops;
}

double sum_us(const std::vector<PlannedOp>& ops) {
  return std::accumulate(ops.begin(), ops.end(), 0.0,
                         [](double us, const PlannedOp& op) { return us + op.layers * op.plan.us; });
}

Json op_json(const PlannedOp& op) {
  return {{"op", op.name},
          {"layers", op.layers},
          {"kernel", op.plan.kernel},
          {"tile", op.plan.tile},
          {"blocks", op.plan.blocks},
          {"launches", op.plan.launches},
          {"us", op.plan.us},
          {"scratch_bytes", op.plan.scratch_bytes}};
}

std::string dash_if_none(int64_t number) {
  return number == 0 ? "-" : fmt::format("{}", number);
}

}  // namespace

Json plan_json(const ModelSource& source, const PlanOptions& options) {
  cuda::PlannedGpu gpu;
  const ModelWeights weights = load_weights(source, gpu, {}, options.quantization);
  const int32_t most_tokens = std::ranges::max(options.tokens);
  const DecoderPrograms programs(source.config(), weights, {}, gpu,
                                 {.max_tokens = most_tokens,
                                  .logit_slice = most_tokens,
                                  .max_positions = source.config().context_length});
  Json plans = Json::array();
  for (const int32_t tokens : options.tokens) {
    const Program& program = programs.steps.variants[tokens > 1 ? 1 : 0];
    std::vector<PlannedOp> ops = planned_ops(program, shape_of(tokens, 0, options.context));
    const std::vector<PlannedOp> of_prompt = planned_ops(program, shape_of(0, tokens, 0));
    Json plan{{"tokens", tokens}, {"decode_us", sum_us(ops)}, {"prompt_us", sum_us(of_prompt)}};
    for (const PlannedOp& op : of_prompt) {  // those of prompts alone stand behind those of decoding
      if (!op.name.ends_with("_prefill")) continue;
      const std::string decode =
          op.name.substr(0, op.name.size() - std::string_view("prefill").size()) + "decode";
      const auto behind =
          std::find_if(ops.rbegin(), ops.rend(), [&](const PlannedOp& one) { return one.name == decode; });
      ops.insert(behind.base(), op);
    }
    for (const PlannedOp& op : ops)
      plan["ops"].push_back(op_json(op));
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::string plan_tables(const Json& plans, const PlanOptions& options) {
  std::string text = "\nplan for one H200, activations in bf16; times are modelled\n";
  for (const Json& plan : plans) {
    const auto tokens = plan.at("tokens").get<int32_t>();
    Table table{.title = fmt::format("\n{} token{}: decoding {} x {} {:.3f} ms, a prompt {:.3f} ms", tokens,
                                     tokens == 1 ? "" : "s", tokens, options.context,
                                     plan.at("decode_us").get<double>() / 1e3,
                                     plan.at("prompt_us").get<double>() / 1e3),
                .columns = {"op", "times", "kernel", "tile", "blocks", "us", "KiB"}};
    for (const Json& op : plan.at("ops")) {
      const auto tile = op.at("tile").get<std::string>();
      table.add(op.at("op").get<std::string>(), op.at("layers").get<int32_t>(),
                op.at("kernel").get<std::string>(), tile.empty() ? "-" : tile,
                dash_if_none(op.at("blocks").get<int64_t>()), op.at("us").get<double>(),
                dash_if_none((op.at("scratch_bytes").get<int64_t>() + 1023) / 1024));
    }
    text += text_table(table, kTextColumns);
  }
  return text +
         "\ntile: rows of weights x tokens that a block multiplies at a time; KiB: scratch memory; us: of "
         "one op, checked by measurements for dense products only\n";
}

}  // namespace minfer
