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
  if (num_launched_ > num_finished_ + kStepsAhead) throw std::logic_error("too many steps are launched");
  if (options_.before_step) options_.before_step(num_launched_);
  const Tokens& previous = drawn_[static_cast<size_t>(num_launched_ + kStepsAhead) % drawn_.size()];
  Tokens& drawn = drawn_[static_cast<size_t>(num_launched_++) % drawn_.size()];
  drawn = model_.forward(with_known_tokens(step.batch, previous));
  if (options_.script) {
    for (size_t row = 0; row < drawn.size(); ++row)
      drawn[row] = options_.script(step.rows[row].position);
  }
  if (step.stamps != nullptr) {
    step.stamps->ops.push_back({.op = step.inputs_op, .begin_ns = now_ns()});
    if (options_.launches != nullptr) {
      step.stamps->ops.back().num_launches = 1;
      step.stamps->launches.push_back(0);
    }
    step.stamps->end_ns = now_ns();
  }
  return {};
}

/// A token id of -1 - r stands for the token that row r of the step before drew.
ForwardBatch ScriptedBackend::with_known_tokens(ForwardBatch batch, const Tokens& previous) {
  token_ids_.assign(batch.token_ids, batch.token_ids + batch.num_tokens);
  for (int32_t& id : token_ids_) {
    if (id < 0) id = previous.at(static_cast<size_t>(-1 - id));
  }
  batch.token_ids = token_ids_.data();
  return batch;
}

void ScriptedBackend::finish_step(std::span<SampledToken> out) {
  if (options_.before_finish) options_.before_finish(num_finished_);
  const Tokens& drawn = drawn_[static_cast<size_t>(num_finished_++) % drawn_.size()];
  if (out.size() != drawn.size()) throw std::logic_error("not as many tokens as the step drew");
  for (size_t row = 0; row < out.size(); ++row)
    out[row] = {.token = drawn[row], .logprob = 0.0f, .top = {}};
}

void ScriptedBackend::fail_op() {
  throw std::logic_error("a scripted backend was asked to compute");
}

}  // namespace minfer::test
