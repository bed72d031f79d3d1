#include "engine/engine.h"

#include <algorithm>
#include <random>
#include <utility>

#include "engine/speculation/standing_tokens.h"

namespace minfer {
namespace {

LiveRequest& live(const ScheduledSequence& scheduled) {
  return *scheduled.sequence->owner;
}

/// A seed of its own for the n-th request that brings none (odd multiplier: all different).
uint64_t drawn_seed(uint64_t engine_seed, uint64_t n) {
  return (engine_seed ^ 0x9e3779b97f4a7c15u) + n * 0xd1342543de82ef95u;
}

uint64_t random_key() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

/// Rows of logits that are computed at a time: a row for each sequence, so that decoding takes one slice, and
/// some for prompts that are scored. These may want one for each token of a step: far more than fit into
/// memory with a large vocabulary. The options are not checked yet.
int32_t logit_slice(const EngineOptions& options) {
  constexpr int32_t kScoredAtATime = 64;
  const int64_t rows = int64_t{options.max_num_seqs} + kScoredAtATime;
  return static_cast<int32_t>(std::clamp<int64_t>(rows, 1, std::max(1, options.max_num_batched_tokens)));
}

/// Null: drafts come from nowhere or from the text itself. Loaded before the model, which gives its KV cache what memory is left.
std::unique_ptr<DraftModel> make_draft_model(const EngineOptions& options, const ModelConfig& config) {
  if (options.speculation.method != SpeculationMethod::draft) return nullptr;
  if (!options.speculation.draft_model)
    fail("speculative: draft takes a model of drafts, expected --speculative-model");
  return std::make_unique<DraftModel>(options, config, LoadProgress());
}

/// So that whoever reads records sees which prompts began alike, but not how.
void hash_prefixes(const Sequence& sequence, uint64_t key, EndedRequest& record) {
  const auto prompt = std::span(sequence.tokens).first(static_cast<size_t>(sequence.num_prompt_tokens));
  uint64_t hash = key;
  for (const char byte : sequence.cache_salt) {
    const TokenId token = byte;
    hash = xxh3_block_hash(hash, {&token, 1});
  }
  size_t begin = 0;
  for (size_t end = EndedRequest::kShortestPrefix;
       end <= prompt.size() && record.num_prefixes < static_cast<int32_t>(EndedRequest::kMostPrefixes);
       end *= 2) {
    hash = xxh3_block_hash(hash, prompt.subspan(begin, end - begin));
    record.prefix_hashes[static_cast<size_t>(record.num_prefixes++)] = static_cast<uint32_t>(hash);
    begin = end;
  }
}

}  // namespace

Engine::Engine(std::unique_ptr<ModelSource> model, const EngineOptions& options, const LoadProgress& progress,
               std::unique_ptr<Backend> backend)
    : model_(std::move(model)),
      tokenizer_(model_->make_tokenizer()),
      draft_model_(make_draft_model(options, model_->config())),
      runner_(*model_, draft_model_ ? draft_model_->reserved(options) : options, logit_slice(options),
              progress, std::move(backend)),
      prefix_hash_key_(options.prefix_hash_key.value_or(random_key())),
      takes_masks_(runner_.backend().info().takes_masks),
      blocks_({.num_blocks = runner_.options().num_blocks,
               .block_size = runner_.options().block_size,
               .enable_prefix_caching = runner_.options().enable_prefix_caching,
               .hash_key = prefix_hash_key_}),
      prefill_budget_(PrefillBudget::make(runner_.options().target_itl_ms, step_cost_)),
      scheduler_(runner_.options(), blocks_, prefill_budget_ ? &*prefill_budget_ : nullptr),
      speculator_(make_speculator(runner_.options(), std::move(draft_model_))),
      builder_(runner_.options()),
      recorder_({.num_ops = runner_.decoder().max_op_runs(),
                 .asynchronous = runner_.backend().info().asynchronous}),
      rank_step_maker_(runner_.rank()),
      range_(runner_.backend(), recorder_, runner_.ranks(), options.tracer),
      steps_(static_cast<size_t>(runner_.options().steps_ahead.value_or(0)) + 1) {
  recorder_.add_sink(step_cost_);
  if (runner_.backend().info().copies_weights) model_->release_data();
  const auto max_rows = static_cast<size_t>(options.max_num_batched_tokens);
  for (OpenStep& step : steps_) {
    step.rows.reserve(max_rows);
    step.sampled.reserve(max_rows);
  }
}

std::vector<RankCounters> Engine::counters() {
  std::vector<RankCounters> counters;
  counters.push_back(
      {.rank = 0, .sampler = runner_.backend().counters(), .ops = {ops().begin(), ops().end()}});
  if (const Ranks* const ranks = runner_.ranks()) {
    for (RankCounters& other : ranks->counters())
      counters.push_back(std::move(other));
  }
  return counters;
}

void Engine::watch_rank_stamps(RankStampSink* sink) {
  if (Ranks* const ranks = runner_.ranks()) ranks->watch_stamps(sink);
}

void Engine::submit(const Request& request) {
  request.sampling.validate(config().vocab_size);
  if (requests_.contains(request.id)) fail("request id \"{}\" is in use", request.id);
  if (request.cache_salt.size() > kMaxCacheSaltBytes) {
    fail("cache_salt: {} bytes, expected at most {}", request.cache_salt.size(), kMaxCacheSaltBytes);
  }
  for (TokenId token : request.prompt) {
    if (token < 0 || token >= config().vocab_size) {
      fail("prompt: token {} is not in the vocabulary of {}", token, config().vocab_size);
    }
  }
  if (request.grammar) check_grammar(*request.grammar);
  const uint64_t seed = request.sampling.seed.value_or(drawn_seed(options().seed, num_submitted_++));
  auto live_request = std::make_unique<LiveRequest>(request, *tokenizer_, seed, options().stream_interval);
  live_request->arrival_ns = now_ns();
  if (const std::optional<Refusal> refusal = scheduler_.enqueue(*live_request)) {
    live_request->end_detail = refusal->detail;
    ended_.push_back(live_request.get());
  }
  requests_.emplace(request.id, std::move(live_request));
}

void Engine::check_grammar(const TokenGrammar& grammar) {
  if (!takes_masks_) {
    fail("grammar: the {} backend cannot draw among the tokens that one allows", backend_info().name);
  }
  const int32_t found = grammar.tokens().vocab_size();
  if (found != config().vocab_size) {
    fail("grammar: made for a vocabulary of {}, expected {}", found, config().vocab_size);
  }
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
  if (num_open_steps_ == 0) range_.at_idle(next_step());
  const bool launched = !range_.wants_idle(next_step()) && launch_step();
  if (num_open_steps_ > 0 && (!launched || num_open_steps_ == steps_.size())) {
    finish_step();
  } else {
    respond();
  }
  if (kv_events_) kv_events_->end_step();
  return outputs_;
}

/// False if there is nothing that can be computed yet.
bool Engine::launch_step() {
  OpenStep& step = steps_[(oldest_step_ + num_open_steps_) % steps_.size()];
  recorder_.begin_step();
  if (!schedule(step)) {
    recorder_.cancel_step();
    return false;
  }
  run(step, build(step));
  ++num_open_steps_;
  return true;
}

void Engine::finish_step() {
  OpenStep& step = steps_[oldest_step_];
  {
    const SpanTimer span(recorder_, HostSpan::wait);
    step.sampled.resize(step.rows.size());
    runner_.finish(step.sampled);
  }
  const int64_t finished_ns = now_ns();
  model_->check_intact();
  commit(step);
  assemble_outputs(step);
  answer_ended();
  {
    const SpanTimer span(recorder_, HostSpan::respond);
    respond();
  }
  if (speculator_) speculator_->finished(step.scheduled, step.begin_ns, now_ns());
  step.ended.clear();
  oldest_step_ = (oldest_step_ + 1) % steps_.size();
  --num_open_steps_;
  if (const StepRecord* record = recorder_.oldest(); record != nullptr && !runner_.rank().is_alone())
    recorder_.add_rank_step(first_rank_step(*record, finished_ns));
  recorder_.end_step();
  for (const RankStep& rank_step : runner_.take_rank_steps())
    recorder_.add_rank_step(rank_step);
  if (num_open_steps_ == 0) range_.at_idle(next_step());
}

/// What a step took on the first rank. `finished_ns`: when the device's results had been taken.
RankStep Engine::first_rank_step(const StepRecord& record, int64_t finished_ns) {
  RankStepMaker::Host host{.launch_ns = record.host_ns[static_cast<size_t>(HostSpan::launch)],
                           .has_before = record.batch.shape.decode_sequences > 0};
  if (record.stamps.waited_until_ns > 0) host.finish_ns = finished_ns - record.stamps.waited_until_ns;
  for (const HostSpan span : {HostSpan::schedule, HostSpan::build, HostSpan::commit, HostSpan::mask,
                              HostSpan::detokenise, HostSpan::respond})
    host.finish_ns += record.host_ns[static_cast<size_t>(span)];
  return rank_step_maker_.make(record.step, record.stamps, ops(), host);
}

void Engine::end_profile_range() {
  range_.end_before(next_step());
  if (num_open_steps_ == 0) range_.at_idle(next_step());
}

void Engine::cut_profile_range() noexcept {
  if (!range_.is_set()) return;
  try {
    runner_.backend().synchronize();
    range_.end_now();
  } catch (const std::exception&) {  // the device has failed: what was traced is lost
  }
}

bool Engine::schedule(OpenStep& step) {
  const SpanTimer span(recorder_, HostSpan::schedule);
  if (speculator_) speculator_->propose(scheduler_);
  step.begin_ns = now_ns();
  step.scheduled = scheduler_.schedule();
  return !step.scheduled.empty();
}

const HostBatch& Engine::build(OpenStep& step) {
  const SpanTimer span(recorder_, HostSpan::build);
  step.rows.clear();
  for (const ScheduledSequence& entry : step.scheduled.sequences) {
    LiveRequest& request = live(entry);
    if (request.first_scheduled_ns == 0) request.first_scheduled_ns = now_ns();
    for (int32_t i = 0; i < entry.num_scored; ++i)
      step.rows.push_back(request.scores.row(entry.first_token + i));
    add_drawn_rows(entry, step.rows);
  }
  const HostBatch& batch = builder_.build(step.scheduled);
  if (recorder_.recording()) recorder_.set_batch(describe(step.scheduled, batch));
  const auto num_decodes = static_cast<size_t>(step.scheduled.num_decode_sequences);
  for (size_t i = 0; i < step.scheduled.sequences.size(); ++i) {
    RequestSteps& steps = step.scheduled.sequences[i].sequence->steps;
    steps.last = recorder_.newest_step();
    if (steps.first < 0) steps.first = steps.last;
    ++(i < num_decodes ? steps.decode : steps.prefill);
  }
  if (recorder_.wants_requests()) {
    for (const ScheduledSequence& entry : step.scheduled.sequences)
      recorder_.add_request(entry.sequence->id);
  }
  return batch;
}

/// How the tokens of a sequence are drawn: the next one, and one behind each of its drafts, as if that were its newest token.
void Engine::add_drawn_rows(const ScheduledSequence& entry, std::vector<SamplingRow>& rows) const {
  const LiveRequest& request = live(entry);
  // The tokens being drawn count as unknown already.
  const int32_t num_unknown = request.num_unknown - entry.num_drawn();
  for (int32_t i = 0; i < entry.num_drawn(); ++i) {
    const int32_t num_before = num_unknown + i;
    SamplingRow& row = rows.emplace_back(
        request.sampling.row(request.size() + num_before, request.num_output_tokens() + num_before));
    // The row of its newest token, before the builder gives it a new one.
    if (num_unknown > 0) row.pending_row = request.logit_row;
    if (request.constraint) row.allowed = request.constraint->allowed();
    row.state = request.arrival + 1;
    if (has_penalties(row)) {
      row.history = request.tokens;
      row.num_prompt = request.num_prompt_tokens;
    }
  }
}

StepBatch Engine::describe(const ScheduledBatch& scheduled, const HostBatch& batch) const {
  StepBatch description;
  description.shape = batch.shape;
  description.prefix_hit_tokens = scheduled.prefix_hit_tokens;
  description.preempted = scheduled.num_preempted;
  description.kv_blocks_used = blocks_.num_live();
  description.kv_blocks_total = blocks_.num_blocks();
  description.waiting = scheduler_.num_waiting();
  description.prefill_budget = scheduled.prefill_budget;
  description.predicted_ns = step_cost_.predict_ns(batch.shape);
  for (const ScheduledSequence& entry : scheduled.sequences) {
    description.constrained_rows += live(entry).constraint ? entry.num_drawn() : 0;
    description.drafts += entry.num_drafts > 0 ? 1 : 0;
    description.draft_tokens += entry.num_drafts;
  }
  return description;
}

void Engine::run(OpenStep& step, const HostBatch& batch) {
  const SpanTimer span(recorder_, HostSpan::launch);
  range_.begin_launch(recorder_.newest_step());
  const LaunchedStep launched = runner_.launch({.step = recorder_.newest_step(),
                                                .batch = batch.view(),
                                                .rows = step.rows,
                                                .stamps = recorder_.stamps()});
  range_.end_launch();
  recorder_.set_launched(launched);
}

void Engine::commit(OpenStep& step) {
  const SpanTimer span(recorder_, HostSpan::commit);
  const int64_t time_ns = now_ns();
  std::span<SampledToken> rows = step.sampled;
  for (const ScheduledSequence& entry : step.scheduled.sequences) {
    const auto num_rows = static_cast<size_t>(entry.num_logit_rows);
    if (entry.is_current()) commit(entry, rows.first(num_rows), time_ns);
    rows = rows.subspan(num_rows);
  }
}

/// Takes what the rows of one sequence gave.
void Engine::commit(const ScheduledSequence& entry, std::span<SampledToken> rows, int64_t time_ns) {
  LiveRequest& request = live(entry);
  const std::span<SampledToken> scored = rows.first(static_cast<size_t>(entry.num_scored));
  const std::span<SampledToken> drawn = rows.subspan(scored.size());
  if (!std::ranges::all_of(scored, &SampledToken::is_drawn)) return end_with_error(request);
  if (!drawn.empty() && !drawn.front().is_drawn()) return end_with_error(request);
  for (int32_t i = 0; i < entry.num_scored; ++i)
    request.scores.accept(entry.first_token + i, std::move(scored[static_cast<size_t>(i)]));
  if (drawn.empty()) return scheduler_.commit(entry, {});
  const StandingTokens standing = standing_tokens(request, drawn, standing_);
  scheduler_.commit(entry, standing_);
  if (entry.num_drafts > 0) count_drafts(request, entry.num_drafts);
  for (const TokenId token : standing_)
    request.sampling.accept(token);
  if (request.first_token_ns == 0) request.first_token_ns = time_ns;
  request.last_token_ns = time_ns;
  request.num_new_tokens = static_cast<int32_t>(standing_.size());
  if (standing.ends) {
    scheduler_.finish(request, FinishReason::stop);
  } else if (standing.is_stuck) {
    finish_with_error(request);
  } else if (request.constraint) {
    follow_grammar(request, standing_.back());
  }
  if (request.reached_max_tokens()) scheduler_.finish(request, FinishReason::length);
}

void Engine::count_drafts(LiveRequest& request, int32_t num_drafts) {
  const SpeculationCounts counts{
      .drafts = 1, .draft_tokens = num_drafts, .accepted_tokens = static_cast<int32_t>(standing_.size()) - 1};
  request.drafted += counts;
  speculator_->checked(request, num_drafts, static_cast<int32_t>(counts.accepted_tokens));
  recorder_.add_accepted_tokens(counts.accepted_tokens);
}

/// Takes what follows a drawn token whatever is drawn, and ends the request where its text is whole, or cannot become so.
void Engine::follow_grammar(LiveRequest& request, TokenId token) {
  const SpanTimer span(recorder_, HostSpan::mask, HostSpan::commit);
  const int32_t num_output = request.num_output_tokens();
  const Constraint::Advance next =
      request.constraint->advance(token, num_output, request.max_tokens - num_output);
  scheduler_.append(request, next.forced);
  for (const TokenId forced : next.forced)
    request.sampling.accept(forced);
  request.num_new_forced = static_cast<int32_t>(next.forced.size());
  if (next.is_whole) scheduler_.finish(request, FinishReason::stop);
  if (next.error.empty()) return;
  request.end_detail = next.error;
  scheduler_.finish(request, FinishReason::error);
}

/// Ends a request whose logits leave no token: an error of this one alone. What the step computed for it is not shared.
void Engine::end_with_error(LiveRequest& request) {
  finish_with_error(request);
  ended_.push_back(&request);
}

void Engine::finish_with_error(LiveRequest& request) {
  request.end_detail = fmt::format(
      "no token can follow token {} of the sequence: every logit of the model is NaN or -inf, or forbidden "
      "by the request",
      request.size());
  scheduler_.finish(request, FinishReason::error);
}

void Engine::assemble_outputs(OpenStep& step) {
  const SpanTimer span(recorder_, HostSpan::detokenise);
  size_t row = 0;
  for (const ScheduledSequence& entry : step.scheduled.sequences) {
    row += static_cast<size_t>(entry.num_scored);
    if (entry.num_drawn() == 0) continue;
    LiveRequest& request = live(entry);
    const int32_t num_new = std::exchange(request.num_new_tokens, 0);
    const auto drawn = std::span(step.sampled).subspan(row, static_cast<size_t>(num_new));
    row += static_cast<size_t>(entry.num_drawn());
    if (drawn.empty()) continue;
    if (!assemble_drawn(request, drawn)) assemble_forced(request);
    if (request.finish || request.output.due()) emit(request);
  }
}

/// Gives its output the drawn tokens up to the end of a stop string: what lies behind it never was. Whether there was one.
bool Engine::assemble_drawn(LiveRequest& request, std::span<SampledToken> drawn) {
  for (size_t i = 0; i < drawn.size(); ++i) {
    const bool visible = !request.ends_with(drawn[i].token);
    if (!request.output.accept(std::move(drawn[i]), visible)) continue;
    const size_t num_left =
        drawn.size() - 1 - i + static_cast<size_t>(std::exchange(request.num_new_forced, 0));
    scheduler_.finish(request, FinishReason::stop);
    // Whatever the tokens behind it led to.
    if (num_left > 0 || request.finish == FinishReason::error) request.finish = FinishReason::stop;
    request.tokens.resize(request.tokens.size() - num_left);
    return true;
  }
  return false;
}

/// The same of tokens that its grammar forced behind them.
void Engine::assemble_forced(LiveRequest& request) {
  int32_t num_left = std::exchange(request.num_new_forced, 0);
  const auto forced = std::span(request.tokens).last(static_cast<size_t>(num_left));
  bool stops = false;
  for (size_t i = 0; i < forced.size() && !stops; ++i, --num_left)
    stops = request.output.accept({.token = forced[i], .logprob = 0.0f, .top = {}}, true);
  const int32_t num_taken = static_cast<int32_t>(forced.size()) - num_left;
  request.num_forced += num_taken;
  recorder_.add_forced_tokens(num_taken);
  if (!stops) return;
  scheduler_.finish(request, FinishReason::stop);
  request.tokens.resize(request.tokens.size() - static_cast<size_t>(num_left));
}

void Engine::answer_ended() {
  for (LiveRequest* request : ended_)
    emit(*request);
  ended_.clear();
}

void Engine::respond() {
  if (sink_ && !outputs_.empty()) sink_(outputs_);
}

void Engine::emit(LiveRequest& request) {
  RequestOutput& output = outputs_.emplace_back(request.output.take(request.finish));
  output.id = request.id;
  if (request.num_output_tokens() > 0) output.prompt_logprobs = request.scores.take();
  if (output.finish && is_failure(*output.finish)) output.finish_detail = request.end_detail;
  output.prompt_tokens = request.num_prompt_tokens;
  output.cached_tokens = request.num_cached_tokens;
  output.output_tokens = request.num_output_tokens();
  output.drafted = request.drafted;
  output.arrival_ns = request.arrival_ns;
  output.first_scheduled_ns = request.first_scheduled_ns;
  output.first_token_ns = request.first_token_ns;
  output.last_token_ns = request.last_token_ns;
  if (!request.finish) return;
  if (recorder_.wants_ended_requests()) record_end(request);
  retire(output.id);
}

void Engine::record_end(const LiveRequest& request) {
  EndedRequest& record = ended_record_;
  record.id = request.id;
  record.finish = name(*request.finish);
  record.arrival_ns = request.arrival_ns;
  record.first_scheduled_ns = request.first_scheduled_ns;
  record.first_token_ns = request.first_token_ns;
  record.end_ns = now_ns();
  record.prompt_tokens = request.num_prompt_tokens;
  record.cached_tokens = request.num_cached_tokens;
  record.recomputed_tokens = request.num_recomputed_tokens;
  record.output_tokens = request.num_output_tokens();
  record.preemptions = request.num_preemptions;
  record.steps = request.steps;
  record.has_grammar = request.constraint.has_value();
  record.grammar_compile_ns = request.constraint ? request.constraint->compile_ns() : 0;
  record.mask_ns = request.constraint ? request.constraint->time_ns() : 0;
  record.forced_tokens = request.num_forced;
  record.drafts = request.drafted.drafts;
  record.draft_tokens = request.drafted.draft_tokens;
  record.accepted_tokens = request.drafted.accepted_tokens;
  record.stream_interval = request.output.stream_interval();
  record.client_wait_ns = request.client_wait ? request.client_wait->until(record.end_ns) : -1;
  record.client = request.client_wait;
  record.num_prefixes = 0;
  if (!request.scores_prompt) hash_prefixes(request, prefix_hash_key_, record);
  recorder_.end_request(record);
  record.client = nullptr;
}

/// Forgets a request, but keeps its memory while a launched step names it.
void Engine::retire(const std::string& id) {
  const auto found = requests_.find(id);
  if (num_open_steps_ > 0) {
    const size_t newest = (oldest_step_ + num_open_steps_ - 1) % steps_.size();
    steps_[newest].ended.push_back(std::move(found->second));
  }
  requests_.erase(found);
}

}  // namespace minfer
