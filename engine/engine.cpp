#include "engine/engine.h"

#include <algorithm>

namespace minfer {
namespace {

LiveRequest& live(const ScheduledSequence& scheduled) {
  return static_cast<LiveRequest&>(*scheduled.sequence);
}

std::vector<TokenId> ending_tokens_of(const Request& request, const Tokenizer& tokenizer) {
  std::vector<TokenId> ending = request.sampling.stop_token_ids;
  if (!request.sampling.ignore_eos) {
    const std::span<const TokenId> ends = tokenizer.end_tokens();
    ending.insert(ending.end(), ends.begin(), ends.end());
  }
  return ending;
}

/// A seed of its own for the n-th request that brings none (odd multiplier: all different).
uint64_t drawn_seed(uint64_t engine_seed, uint64_t n) {
  return (engine_seed ^ 0x9e3779b97f4a7c15u) + n * 0xd1342543de82ef95u;
}

}  // namespace

LiveRequest::LiveRequest(const Request& request, const Tokenizer& tokenizer, uint64_t seed,
                         int32_t stream_interval)
    : Sequence(request.id, request.prompt, request.sampling.max_tokens, request.priority),
      ending_tokens(ending_tokens_of(request, tokenizer)),
      sampling(request.sampling, seed, request.prompt, ending_tokens),
      output(tokenizer, request.sampling, stream_interval) {}

bool LiveRequest::ends_with(TokenId token) const {
  return std::ranges::find(ending_tokens, token) != ending_tokens.end();
}

Engine::Engine(std::unique_ptr<ModelSource> model, const EngineOptions& options, const LoadProgress& progress)
    : model_(std::move(model)),
      tokenizer_(model_->make_tokenizer()),
      runner_(*model_, options, options.max_num_seqs, progress),
      blocks_({.num_blocks = runner_.options().num_blocks,
               .block_size = runner_.options().block_size,
               .enable_prefix_caching = runner_.options().enable_prefix_caching}),
      scheduler_(runner_.options(), blocks_),
      builder_(runner_.options()),
      recorder_({.num_ops = runner_.decoder().ops().size()}) {
  const auto seats = static_cast<size_t>(runner_.options().max_num_seqs);
  sampling_rows_.reserve(seats);
  sampled_.resize(seats);
}

void Engine::submit(const Request& request) {
  request.sampling.validate(config().vocab_size);
  if (requests_.contains(request.id)) fail("request id \"{}\" is in use", request.id);
  for (TokenId token : request.prompt) {
    if (token < 0 || token >= config().vocab_size) {
      fail("prompt: token {} is not in the vocabulary of {}", token, config().vocab_size);
    }
  }
  const uint64_t seed = request.sampling.seed.value_or(drawn_seed(options().seed, num_submitted_++));
  auto live_request = std::make_unique<LiveRequest>(request, *tokenizer_, seed, options().stream_interval);
  live_request->arrival_ns = now_ns();
  if (const std::optional<Refusal> refusal = scheduler_.enqueue(*live_request)) {
    live_request->refusal = refusal->detail;
    ended_.push_back(live_request.get());
  }
  requests_.emplace(request.id, std::move(live_request));
}

void Engine::cancel(std::string_view id) {
  const auto found = requests_.find(std::string(id));
  if (found == requests_.end() || found->second->finish) return;
  scheduler_.finish(*found->second, FinishReason::cancelled);
  ended_.push_back(found->second.get());
}

std::span<const RequestOutput> Engine::step() {
  outputs_.clear();
  answer_ended();
  recorder_.begin_step();
  const ScheduledBatch& scheduled = schedule();
  if (scheduled.empty()) {
    recorder_.cancel_step();
    return outputs_;
  }
  const HostBatch& batch = build(scheduled);
  run(batch);
  model_->check_intact();
  commit(scheduled);
  assemble_outputs(scheduled);
  recorder_.end_step();
  return outputs_;
}

const ScheduledBatch& Engine::schedule() {
  const SpanTimer span(recorder_, HostSpan::schedule);
  return scheduler_.schedule();
}

const HostBatch& Engine::build(const ScheduledBatch& scheduled) {
  const SpanTimer span(recorder_, HostSpan::build);
  const HostBatch& batch = builder_.build(scheduled);
  sampling_rows_.clear();
  for (const ScheduledSequence& entry : scheduled.sequences) {
    LiveRequest& request = live(entry);
    if (request.first_scheduled_ns == 0) request.first_scheduled_ns = now_ns();
    if (entry.num_logit_rows > 0) {
      sampling_rows_.push_back(request.sampling.row(request.size(), request.num_output_tokens()));
    }
  }
  if (recorder_.recording()) recorder_.set_batch(describe(scheduled, batch));
  if (recorder_.wants_requests()) {
    for (const ScheduledSequence& entry : scheduled.sequences)
      recorder_.add_request(entry.sequence->id);
  }
  return batch;
}

StepBatch Engine::describe(const ScheduledBatch& scheduled, const HostBatch& batch) const {
  return {.shape = batch.shape,
          .padded_tokens = 0,
          .prefix_hit_tokens = scheduled.prefix_hit_tokens,
          .preempted = scheduled.num_preempted,
          .kv_blocks_used = blocks_.num_live(),
          .kv_blocks_total = blocks_.num_blocks(),
          .waiting = scheduler_.num_waiting()};
}

void Engine::run(const HostBatch& batch) {
  const SpanTimer span(recorder_, HostSpan::launch);
  Backend& backend = runner_.backend();
  Decoder& decoder = runner_.decoder();
  backend.begin_step(recorder_.stamps());
  const Tensor logits = decoder.forward(batch.view());
  if (!sampling_rows_.empty()) {
    backend.sample(decoder.sample_op(), logits, sampling_rows_,
                   std::span(sampled_).first(sampling_rows_.size()));
  }
  backend.end_step();
}

void Engine::commit(const ScheduledBatch& scheduled) {
  const SpanTimer span(recorder_, HostSpan::commit);
  const int64_t time_ns = now_ns();
  size_t row = 0;
  for (const ScheduledSequence& entry : scheduled.sequences) {
    if (entry.num_logit_rows == 0) {
      scheduler_.commit(entry, {});
      continue;
    }
    LiveRequest& request = live(entry);
    const TokenId token = sampled_[row++].token;
    scheduler_.commit(entry, {&token, 1});
    request.sampling.accept(token);
    if (request.first_token_ns == 0) request.first_token_ns = time_ns;
    request.last_token_ns = time_ns;
    if (request.ends_with(token)) {
      scheduler_.finish(request, FinishReason::stop);
    } else if (request.reached_max_tokens()) {
      scheduler_.finish(request, FinishReason::length);
    }
  }
}

void Engine::assemble_outputs(const ScheduledBatch& scheduled) {
  const SpanTimer span(recorder_, HostSpan::detokenise);
  size_t row = 0;
  for (const ScheduledSequence& entry : scheduled.sequences) {
    if (entry.num_logit_rows == 0) continue;
    LiveRequest& request = live(entry);
    SampledToken& token = sampled_[row++];
    const bool visible = !request.ends_with(token.token);
    if (request.output.accept(std::move(token), visible)) scheduler_.finish(request, FinishReason::stop);
    if (request.finish || request.output.due()) emit(request);
  }
}

void Engine::answer_ended() {
  for (LiveRequest* request : ended_)
    emit(*request);
  ended_.clear();
}

void Engine::emit(LiveRequest& request) {
  RequestOutput& output = outputs_.emplace_back(request.output.take(request.finish));
  output.id = request.id;
  if (!request.refusal.empty()) output.finish_detail = request.refusal;
  output.prompt_tokens = request.num_prompt_tokens;
  output.cached_tokens = request.num_cached_tokens;
  output.output_tokens = request.num_output_tokens();
  output.arrival_ns = request.arrival_ns;
  output.first_scheduled_ns = request.first_scheduled_ns;
  output.first_token_ns = request.first_token_ns;
  output.last_token_ns = request.last_token_ns;
  if (request.finish) requests_.erase(output.id);
}

}  // namespace minfer
