#pragma once

#include <set>
#include <string_view>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/last_steps.h"

namespace minfer::test {

/// The CPU backend, which also counts how many experts each routed layer's tokens chose, layer by layer and step by step.
class CountingBackend final : public cpu::CpuBackend {
 public:
  CountingBackend() : CpuBackend(1) {}

  void moe_route(OpId op, const MoeRouteArgs& args) override {
    CpuBackend::moe_route(op, args);
    if (args.logits.cols == 1) return;  // the gate of a shared expert: there is no choice
    counts.emplace_back(
        std::set<int32_t>(args.expert_ids.data, args.expert_ids + args.logits.rows * args.experts_used)
            .size());
  }

  std::vector<int32_t> counts;
};

/// The number of experts that each run of the op named `op` read, from the records of all steps.
inline std::vector<int32_t> experts_read(Engine& engine, std::string_view op) {
  std::vector<int32_t> experts;
  for (const StepRecord& record : test::last_steps(engine.recorder(), 4096)) {
    for (const StepStamps::Stamp& stamp : record.stamps.ops) {
      if (engine.ops()[static_cast<size_t>(stamp.op)].name == op) experts.push_back(stamp.experts_read);
    }
  }
  return experts;
}

/// Runs three prompts, then their decoding: with CUDA graphs a step of three has a token of padding.
inline void run_three_requests(Engine& engine) {
  for (int32_t i = 0; i < 3; ++i)
    engine.submit(greedy_request(std::to_string(i), {5 + i, 40 + 3 * i, 90 - 7 * i, 12 + i}, 12 + 2 * i));
  Answers().run(engine);
}

}  // namespace minfer::test
