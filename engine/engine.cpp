#include "engine/engine.h"

#include <algorithm>
#include <random>

#include "engine/speculation/draft_layer.h"
#include "engine/speculation/ngram_drafter.h"
#include "kernels/cuda/device/devices.h"
#include "profiling/host/host_counters.h"

namespace minfer {
namespace {

/// A seed for the n-th request that brings none; each gets its own (odd multiplier: all different).
uint64_t drawn_seed(uint64_t engine_seed, uint64_t n) {
  return (engine_seed ^ 0x9e3779b97f4a7c15u) + n * 0xd1342543de82ef95u;
}

uint64_t random_key() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

/// Rows of logits that are computed at a time: a row for each sequence, so that decoding takes one
/// slice, and some for prompts that are scored. A scored prompt may want a row for each token of a
/// step: far more than fit into memory with a large vocabulary. The options are not checked yet.
int32_t logit_slice(const EngineOptions& options) {
  constexpr int32_t kScoredAtATime = 64;
  const int64_t rows = int64_t{options.max_num_seqs} + kScoredAtATime;
  return static_cast<int32_t>(std::clamp<int64_t>(rows, 1, std::max(1, options.max_num_batched_tokens)));
}

/// Null: there are no drafts, or they come from the text itself. Loaded before the model, whose KV cache gets the memory that is left.
std::unique_ptr<DraftModel> make_draft_model(const EngineOptions& options, const ModelConfig& config) {
  if (options.speculation.method != SpeculationMethod::draft) return nullptr;
  if (!options.speculation.draft_model)
    fail("speculative: draft needs a draft model, expected --speculative-model");
  return std::make_unique<DraftModel>(options, config, LoadProgress());
}

/// Null: there are no drafts.
std::unique_ptr<DraftSource> make_draft_source(const EngineOptions& options,
                                               std::unique_ptr<DraftModel> draft_model, ModelRunner& runner,
                                               BatchBuilder& builder) {
  switch (options.speculation.method) {
    case SpeculationMethod::off:
      break;
    case SpeculationMethod::ngram:
      return make_ngram_source(options.speculation);
    case SpeculationMethod::draft:
      draft_model->begin(options);
      return draft_model;
    case SpeculationMethod::mtp:
      return std::make_unique<DraftLayer>(
          builder, [&runner](const StepArgs& step) { runner.launch(step); },
          [&runner](std::span<SampledToken> out) { runner.finish(out); },
          [&runner] { return runner.is_idle(); });
  }
  return nullptr;
}

constexpr std::chrono::milliseconds kReadHost{250}, kReadDevices{100};
constexpr size_t kMostHostSamples = 4'096;  // the last seventeen minutes
constexpr size_t kMostReadings = 16'384;    // of one device the last 27 minutes

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
      blocks_(block_manager_options(runner_.options(), prefix_hash_key_)),
      prefill_budget_(PrefillBudget::make(runner_.options().target_itl_ms, step_cost_)),
      scheduler_(runner_.options(), blocks_, prefill_budget_ ? &*prefill_budget_ : nullptr),
      builder_(runner_.options(), windows_of(model_->config(), runner_.options().max_model_len)),
      recorder_({.num_ops = runner_.decoder().max_op_runs(),
                 .asynchronous = runner_.backend().info().asynchronous}),
      rank_step_maker_(runner_.rank()),
      range_(runner_.backend(), recorder_, runner_.ranks(), options.tracer),
      steps_(static_cast<size_t>(runner_.options().steps_ahead.value_or(0)) + 1) {
  if (auto source = make_draft_source(runner_.options(), std::move(draft_model_), runner_, builder_))
    speculator_ = std::make_unique<Speculator>(runner_.options(), std::move(source), step_cost_);
  recorder_.add_sink(step_cost_);
  if (!options.kv_disk.folder.empty()) {
    kv_disk_.emplace(*model_, runner_.options(), runner_.backend(), runner_.kv(), blocks_, step_cost_);
    scheduler_.on_admission([this](Sequence& sequence) { kv_disk_->begin_reading(sequence); });
  }
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

HostSampler& Engine::host_sampler() {
  if (!host_sampler_) {
    if (DeviceReader reader = make_device_reader())
      device_sampler_ = std::make_unique<DeviceSampler>(kReadDevices, kMostReadings, std::move(reader));
    host_sampler_ = std::make_unique<HostSampler>(kReadHost, kMostHostSamples,
                                                  host_samples([this] { return recorder_.engine_thread(); }));
  }
  return *host_sampler_;
}

DeviceReader Engine::make_device_reader() {
  std::vector<std::string> ids{runner_.backend().info().device_id};
  if (ids.front().empty()) return {};
  // Ranks of one process are on the machine's first devices.
  const auto count = options().processes ? 1 : static_cast<size_t>(options().tensor_parallel_size);
  const std::vector<CudaDevice> devices = count > 1 ? cuda_devices() : std::vector<CudaDevice>();
  for (size_t rank = 1; rank < std::min(count, devices.size()); ++rank)
    ids.push_back(devices[rank].id);
  return minfer::make_device_reader(ids);
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
  if (request.grammar) {
    check_grammar(*request.grammar);
    grammar_rows_.start_threads();
  }
  const uint64_t seed = request.sampling.seed.value_or(drawn_seed(options().seed, num_submitted_++));
  const auto [place, is_new] = requests_.emplace(
      request.id, std::make_unique<LiveRequest>(request, *tokenizer_, seed, options().stream_interval));
  LiveRequest& live_request = *place->second;
  live_request.arrival_ns = now_ns();
  try {
    live_request.end_detail = scheduler_.enqueue(live_request).value_or("");
    if (live_request.finish) ended_.push_back(&live_request);
  } catch (...) {
    requests_.erase(place);
    throw;
  }
  num_constrained_ += live_request.constraint ? 1 : 0;
}

void Engine::check_grammar(const TokenGrammar& grammar) {
  if (!takes_masks_) {
    fail("grammar: the {} backend cannot draw only tokens that a grammar allows", backend_info().name);
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
  if (kv_disk_) kv_disk_->advance(scheduler_.running(), num_open_steps_ == 0);
  const bool launched = !range_.wants_idle(next_step()) && launch_step();
  if (num_open_steps_ > 0 && (!launched || num_open_steps_ == steps_.size())) {
    finish_step();
  } else {
    if (!launched) follow_grammars();
    if (!launched && kv_disk_ && grammar_rows_.empty()) kv_disk_->wait();
    respond();
  }
  if (kv_events_) kv_events_->end_step();
  return outputs_;
}

/// Returns false if nothing can be computed yet.
bool Engine::launch_step() {
  if (speculator_ && !runner_.is_idle() && speculator_->waits_for_idle(scheduler_.running())) return false;
  OpenStep& step = steps_[(oldest_step_ + num_open_steps_) % steps_.size()];
  recorder_.begin_step();
  if (!schedule(step)) {
    recorder_.cancel_step();
    return false;
  }
  run(step, build(step));
  if (kv_disk_) step.num_copies = kv_disk_->num_copies();
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
  if (kv_disk_) kv_disk_->copied(step.num_copies);
  model_->check_intact();
  commit(step);
  launch_later_rows();
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

/// The times of a step on the first rank. `finished_ns`: when the device's results had been taken.
RankStep Engine::first_rank_step(const StepRecord& record, int64_t finished_ns) {
  RankStepMaker::Host host{.launch_ns = record.host_ns[static_cast<size_t>(HostSpan::launch)],
                           .has_before = record.batch.shape.decode_sequences > 0};
  if (record.stamps.waited_until_ns > 0) host.finish_ns = finished_ns - record.stamps.waited_until_ns;
  for (const HostSpan span : {HostSpan::draft, HostSpan::schedule, HostSpan::build, HostSpan::commit,
                              HostSpan::mask, HostSpan::detokenise, HostSpan::respond})
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

/// A sequence that waits for its token costs idle time of the device; one that does not may be computed for nothing. So sequences
/// with grammars wait if nothing is launched without them and no draw is likely to stand, or if drafts make the others wait: half
/// a batch that waits splits every step in two. A sequence whose mask takes long waits too: a draw made ahead would preempt it.
void Engine::choose_who_waits() {
  if (num_constrained_ == 0 || steps_.size() == 1) return;
  bool all_expect_forced = scheduler_.num_waiting() == 0, others_wait = false;
  for (const Sequence* sequence : scheduler_.running()) {
    const LiveRequest& request = *sequence->owner;
    const bool expects_forced = sequence->is_decoding() && request.constraint && request.expects_forced;
    all_expect_forced = all_expect_forced && expects_forced;
    others_wait = others_wait || (!request.constraint && request.waits_for_token);
  }
  for (Sequence* sequence : scheduler_.running()) {
    const LiveRequest& request = *sequence->owner;
    if (request.constraint)
      sequence->waits_for_token = all_expect_forced || others_wait || request.has_heavy_grammar;
  }
}

bool Engine::schedule(OpenStep& step) {
  if (speculator_) {
    const SpanTimer span(recorder_, HostSpan::draft);
    speculator_->propose(scheduler_);
  }
  const SpanTimer span(recorder_, HostSpan::schedule);
  step.begin_ns = now_ns();
  choose_who_waits();
  step.scheduled = scheduler_.schedule();
  return !step.scheduled.empty();
}

const HostBatch& Engine::build(OpenStep& step) {
  const SpanTimer span(recorder_, HostSpan::build);
  for (const ScheduledSequence& entry : step.scheduled.sequences) {
    if (entry.sequence->first_scheduled_ns == 0) entry.sequence->first_scheduled_ns = now_ns();
  }
  step.draws_later = needs_later_rows(step.scheduled);
  if (!step.draws_later) add_rows(step);
  const HostBatch& batch = builder_.build(step.scheduled);
  if (recorder_.recording()) recorder_.set_batch(describe(step.scheduled, batch));
  const auto num_decodes = static_cast<size_t>(step.scheduled.num_decode_sequences);
  std::vector<uint32_t>& served = recorder_.served();
  served.resize(step.scheduled.sequences.size());
  for (size_t i = 0; i < step.scheduled.sequences.size(); ++i) {
    Sequence& sequence = *step.scheduled.sequences[i].sequence;
    served[i] = static_cast<uint32_t>(sequence.arrival);
    RequestSteps& steps = sequence.steps;
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

/// True if a mask depends on a token that the step in front draws.
bool Engine::needs_later_rows(const ScheduledBatch& scheduled) const {
  return num_constrained_ > 0 && std::ranges::any_of(scheduled.sequences, [](const ScheduledSequence& entry) {
           return live(entry).constraint && entry.num_drawn() > 0 &&
                  entry.sequence->num_unknown > entry.num_drawn();
         });
}

/// Adds the rows that draw a step's tokens, as far as they are known now.
void Engine::add_rows(OpenStep& step) const {
  step.rows.clear();
  SamplingRow unwanted;
  unwanted.temperature = 0.0f;
  for (const ScheduledSequence& entry : step.scheduled.sequences) {
    if (step.draws_later && (!entry.is_current() || entry.sequence->num_dropped_draws > 0)) {
      // The step in front has ended the request, or has shown what follows: then there is one row, in front of that.
      const bool scores = entry.is_current() && entry.sequence->is_scoring();
      step.rows.insert(step.rows.end(), static_cast<size_t>(entry.num_logit_rows),
                       scores ? live(entry).scores.row(entry.first_row()) : unwanted);
      continue;
    }
    for (int32_t i = 0; i < entry.num_scored; ++i)
      step.rows.push_back(live(entry).scores.row(entry.first_row() + i));
    add_drawn_rows(entry, step.rows);
  }
}

/// Adds the rows that draw a sequence's tokens: the next token, and one behind each of its drafts, as if that were its newest token.
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

StepBatch Engine::describe(const ScheduledBatch& scheduled, const HostBatch& batch) {
  StepBatch description;
  description.shape = batch.shape;
  description.prefix_hit_tokens = scheduled.prefix_hit_tokens;
  description.preempted = scheduled.num_preempted;
  description.kv_blocks_used = blocks_.num_live();
  description.kv_blocks_total = blocks_.num_blocks();
  description.waiting = scheduler_.num_waiting();
  description.prefill_budget = scheduled.prefill_budget;
  description.predicted_ns = step_cost_.predict_ns(batch.shape);
  if (kv_disk_) description.disk = kv_disk_->counts() - std::exchange(told_disk_counts_, kv_disk_->counts());
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
  const LaunchedStep launched =
      runner_.launch({.step = recorder_.newest_step(),
                      .batch = batch.view(),
                      .rows = step.draws_later ? std::span<SamplingRow>() : step.rows,
                      .later_rows = step.draws_later ? batch.num_logit_rows : 0,
                      .stamps = recorder_.stamps()});
  range_.end_launch();
  recorder_.set_launched(launched);
}

/// Draws the tokens of the newest step, if it waits for the step that has just been committed.
void Engine::launch_later_rows() {
  OpenStep& step = steps_[(oldest_step_ + num_open_steps_ - 1) % steps_.size()];
  if (!step.draws_later) return;
  const SpanTimer span(recorder_, HostSpan::launch);
  add_rows(step);
  step.draws_later = false;
  range_.begin_launch(recorder_.newest_step());
  runner_.backend().launch_sampling(
      step.rows);  // the other ranks, which launched the whole step, wait for its tokens
  range_.end_launch();
}

}  // namespace minfer
