#include "tests/support/engine/scripted_backend.h"

#include <stdexcept>
#include <utility>

namespace minfer::test {

ScriptedBackend::ScriptedBackend(Options options)
    : options_(std::move(options)),
      memory_(make_cpu_backend(1)),
      model_(options_.num_blocks, options_.block_size, options_.vocab_size, options_.seed) {}

void ScriptedBackend::copy_to_device(void* device, const void* host, size_t bytes) {
  memory_->copy_to_device(device, host, bytes);
}

void ScriptedBackend::copy_to_host(void* host, const void* device, size_t bytes) {
  memory_->copy_to_host(host, device, bytes);
}

LaunchedStep ScriptedBackend::launch_step(const StepArgs& step, const ForwardPass&) {
  if (options_.before_step) options_.before_step(num_steps_);
  ++num_steps_;
  drawn_ = model_.forward(step.batch);
  if (options_.script) {
    for (size_t row = 0; row < drawn_.size(); ++row)
      drawn_[row] = options_.script(step.rows[row].position);
  }
  if (step.stamps != nullptr) {
    step.stamps->ops.push_back({.op = step.inputs_op, .begin_ns = now_ns()});
    step.stamps->end_ns = now_ns();
  }
  return {};
}

void ScriptedBackend::finish_step(std::span<SampledToken> out) {
  for (size_t row = 0; row < out.size(); ++row)
    out[row] = {.token = drawn_[row], .logprob = 0.0f, .top = {}};
}

void ScriptedBackend::fail_op() {
  throw std::logic_error("a scripted backend was asked to compute");
}

}  // namespace minfer::test
