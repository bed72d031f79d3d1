#include "engine/model_runner.h"

#include "engine/options/sizes.h"
#include "engine/ranks/agreement.h"
#include "engine/ranks/rank_backends.h"
#include "engine/ranks/ranks.h"
#include "kernels/comm/process_group.h"

namespace minfer {

ModelRunner::ModelRunner(const ModelSource& source, const EngineOptions& options, int32_t logit_slice,
                         const LoadProgress& progress, std::unique_ptr<Backend> backend)
    : options_(options) {
  const ModelConfig& config = source.config();
  check_options(options_, config);
  if (backend) options_.tensor_parallel_size = 1;
  if (options_.processes && !backend) {
    choose_for_processes(options_);
    agree(source, options_, logit_slice);
    if (!options_.processes->rank().is_first()) follow_first_process(source, options_, logit_slice);
    ranks_ = make_process_ranks(source, options_);
  } else if (options_.tensor_parallel_size > 1) {
    ranks_ = make_thread_ranks(source, options_, logit_slice);
  }
  if (ranks_) {
    backend = ranks_->make_backend();
  } else if (!backend) {
    backend = RankBackends(options_, source, nullptr).make(0);
  }
  const ModelSource& share = ranks_ ? ranks_->share() : source;
  choose_for_backend(options_, share.config(), backend->info());
  model_ = std::make_unique<RankModel>(share, options_, logit_slice, progress, std::move(backend));
  if (ranks_ && model_->backend().info().copies_weights) ranks_->share().release_data();
  model_->complete(options_, [this](int64_t value) { return ranks_ ? ranks_->least(value) : value; });
  if (ranks_) ranks_->begin();
}

LaunchedStep ModelRunner::launch(StepArgs step) {
  ++num_open_;
  if (ranks_) {
    step.share_op = decoder().frame().share;
    ranks_->launch(step);
  }
  return model_->launch(step);
}

void ModelRunner::finish(std::span<SampledToken> out) {
  --num_open_;
  backend().finish_step(out);
  if (ranks_) ranks_->finish();
}

std::span<const RankStep> ModelRunner::take_rank_steps() {
  if (ranks_) ranks_->take_steps(rank_steps_);
  return rank_steps_;
}

LogitRows ModelRunner::logits(const ForwardBatch& batch, bool drafts) {
  Tensor logits;
  ++num_open_;
  if (ranks_) ranks_->launch({.batch = batch});
  model_->launch({.batch = batch, .drafts = drafts}, [&](const ForwardBatch& device_batch) {
    logits = decoder().forward(device_batch, drafts);
    return logits;
  });
  finish({});
  if (logits.rows != batch.num_logit_rows) {
    fail("{} rows of logits, expected at most {}", batch.num_logit_rows, logits.rows);
  }
  host_logits_.resize(static_cast<size_t>(logits.rows * logits.cols));
  const bool is_dense = logits.stride == logits.cols;  // else ranks have unlike shares of the vocabulary
  const auto piece = static_cast<size_t>(is_dense ? logits.rows * logits.cols : logits.cols);
  for (size_t at = 0, row = 0; at < host_logits_.size(); at += piece, ++row)
    backend().copy_to_host(&host_logits_[at], logits.f32_row(static_cast<int64_t>(row)),
                           piece * sizeof(float));
  return {host_logits_, logits.cols};
}

}  // namespace minfer
