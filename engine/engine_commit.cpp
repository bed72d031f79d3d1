#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/engine.h"
#include "engine/speculation/speculator.h"

/// The results of a step: its tokens are added to the sequences, then become outputs, and requests that end become records.
namespace minfer {
namespace {

/// Hashes prefixes of the prompt, so that a reader of records sees which prompts began alike, but not how.
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

void Engine::commit(OpenStep& step) {
  const SpanTimer span(recorder_, HostSpan::commit);
  const int64_t time_ns = now_ns();
  std::span<SampledToken> rows = step.sampled;
  for (const ScheduledSequence& entry : step.scheduled.sequences) {
    const auto num_rows = static_cast<size_t>(entry.num_logit_rows);
    if (entry.is_current()) commit(entry, rows.first(num_rows), time_ns);
    rows = rows.subspan(num_rows);
  }
  follow_grammars();
}

/// Takes the results of one sequence's rows.
void Engine::commit(const ScheduledSequence& entry, std::span<SampledToken> rows, int64_t time_ns) {
  LiveRequest& request = live(entry);
  const bool is_dropped = request.num_dropped_draws > 0;
  const std::span<SampledToken> scored = rows.first(static_cast<size_t>(entry.num_scored_rows()));
  const std::span<SampledToken> drawn = rows.subspan(is_dropped ? rows.size() : scored.size());
  if (!std::ranges::all_of(scored, &SampledToken::is_drawn)) return end_with_error(request);
  take_scores(request, entry.first_row(), scored);
  if (request.num_new_scored > 0) request.last_token_ns = time_ns;
  if (!drawn.empty() && !drawn.front().is_drawn()) {
    request.num_unscored -= entry.num_scored_rows();
    return end_with_error(request);
  }
  if (drawn.empty()) {
    scheduler_.commit(entry, {});
    if (request.draws || request.is_scoring()) return;
    scheduler_.finish(request, request.end);
    if (request.num_new_scored == 0) ended_.push_back(&request);
    return;
  }
  const StandingTokens standing =
      standing_tokens(request, drawn, options().speculation.synthetic_acceptance, standing_);
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
    return grammar_rows_.add(request, standing_.back());
  }
  if (request.reached_max_tokens()) scheduler_.finish(request, FinishReason::length);
}

void Engine::count_drafts(LiveRequest& request, int32_t num_drafts) {
  const SpeculationCounts counts{
      .drafts = 1, .draft_tokens = num_drafts, .accepted_tokens = static_cast<int32_t>(standing_.size()) - 1};
  request.drafted += counts;
  request.drafter->checked(num_drafts, static_cast<int32_t>(counts.accepted_tokens));
  recorder_.add_accepted_tokens(counts.accepted_tokens);
}

/// Takes the logprobs of known tokens, from the one behind `first_row` on: tokens of the prompt, or tokens that a grammar forced.
void Engine::take_scores(LiveRequest& request, int32_t first_row, std::span<SampledToken> scored) {
  for (SampledToken& each : scored)
    request.scores.correct(first_row++, each);
  if (request.num_output_tokens() > 0) {
    request.num_new_scored = static_cast<int32_t>(scored.size());
  } else {
    std::ranges::move(scored, std::back_inserter(request.prompt_logprobs));
  }
}

/// Ends a request when the logprobs of all its tokens are known: now, or later without drawing another token.
void Engine::end_when_scored(LiveRequest& request, FinishReason reason) {
  if (!request.is_scoring()) return scheduler_.finish(request, reason);
  request.draws = false;
  request.end = reason;
}

void Engine::follow_grammars() {
  if (grammar_rows_.empty()) return;
  const SpanTimer span(recorder_, HostSpan::mask, HostSpan::commit);
  std::vector<LiveRequest*> late;
  for (const GrammarRows::Row& row : grammar_rows_.advance()) {
    if (row.next.is_pending) {
      if (!row.is_late) scheduler_.hold(*row.request);
      continue;
    }
    if (row.is_late) {
      scheduler_.release(*row.request);
      late.push_back(row.request);
    }
    follow_grammar(*row.request, row.next);
  }
  grammar_rows_.drop_followed();
  for (LiveRequest* request : late) {  // the step that drew for them has been answered
    assemble_forced(*request);
    if (request->finish || request->output.due()) emit(*request);
  }
}

/// Takes the tokens that follow a drawn token whatever is drawn, and ends the request if its text is whole or cannot become whole.
void Engine::follow_grammar(LiveRequest& request, const Constraint::Advance& next) {
  scheduler_.append(request, next.forced);
  for (const TokenId forced : next.forced)
    request.sampling.accept(forced);
  const auto num_forced = static_cast<int32_t>(next.forced.size());
  request.expects_forced = num_forced > 0;
  if (request.num_logprobs < 0) {
    request.num_new_forced = num_forced;
  } else if (num_forced > 0) {
    const int32_t first = request.size() - num_forced - 1;
    request.num_unscored = num_forced;
    request.scores = GivenScores(std::span(request.tokens).subspan(static_cast<size_t>(first)), first,
                                 request.num_logprobs);
  }
  if (next.is_whole) {
    end_when_scored(request, FinishReason::stop);
  } else if (!next.error.empty()) {
    request.end_detail = next.error;
    end_when_scored(request, FinishReason::error);
  } else if (request.reached_max_tokens()) {
    end_when_scored(request, FinishReason::length);
  }
}

/// Ends a request whose logits leave no token to draw: only this request fails. The KV that the step computed for it is not shared.
void Engine::end_with_error(LiveRequest& request) {
  finish_with_error(request);
  if (request.num_new_scored == 0) ended_.push_back(&request);
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
    const auto rows = std::span(step.sampled).subspan(row, static_cast<size_t>(entry.num_logit_rows));
    row += rows.size();
    LiveRequest& request = live(entry);
    const int32_t num_new = request.num_new_scored + std::exchange(request.num_new_tokens, 0);
    if (num_new == 0) continue;
    const int32_t num_of_prompt = std::max(0, entry.num_scored - request.num_new_scored);
    const auto new_rows = rows.subspan(static_cast<size_t>(num_of_prompt), static_cast<size_t>(num_new));
    if (!assemble_rows(request, new_rows)) assemble_forced(request);
    if (request.finish || request.output.due()) emit(request);
  }
}

/// Gives its output the scored and the drawn tokens up to the end of a stop string, and drops the tokens behind it. True if there was one.
bool Engine::assemble_rows(LiveRequest& request, std::span<SampledToken> rows) {
  const auto num_scored = static_cast<size_t>(std::exchange(request.num_new_scored, 0));
  size_t num_taken = 0;
  bool stops = false;
  while (num_taken < rows.size() && !stops) {
    SampledToken& row = rows[num_taken++];
    const bool visible = request.shows(row.token);
    stops = request.output.accept(std::move(row), visible);
  }
  count_forced(request, static_cast<int32_t>(std::min(num_scored, num_taken)));
  if (!stops) return false;
  const size_t num_left =
      rows.size() - num_taken +
      static_cast<size_t>(std::exchange(request.num_new_forced, 0) + std::exchange(request.num_unscored, 0));
  scheduler_.finish(request, FinishReason::stop);
  // The result of the tokens behind it does not count.
  if (num_left > 0 || request.finish == FinishReason::error) request.finish = FinishReason::stop;
  request.tokens.resize(request.tokens.size() - num_left);
  return true;
}

/// The same for tokens that its grammar forced behind the drawn ones.
void Engine::assemble_forced(LiveRequest& request) {
  int32_t num_left = std::exchange(request.num_new_forced, 0);
  const auto forced = std::span(request.tokens).last(static_cast<size_t>(num_left));
  bool stops = false;
  for (size_t i = 0; i < forced.size() && !stops; ++i, --num_left)
    stops = request.output.accept({.token = forced[i], .logprob = 0.0f, .top = {}}, true);
  count_forced(request, static_cast<int32_t>(forced.size()) - num_left);
  if (!stops) return;
  scheduler_.finish(request, FinishReason::stop);
  request.tokens.resize(request.tokens.size() - static_cast<size_t>(num_left));
}

void Engine::count_forced(LiveRequest& request, int32_t num_tokens) {
  request.num_forced += num_tokens;
  recorder_.add_forced_tokens(num_tokens);
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
  if (request.num_output_tokens() > 0 || !request.is_scoring())
    output.prompt_logprobs = std::exchange(request.prompt_logprobs, {});
  if (output.finish && is_failure(*output.finish)) output.finish_detail = request.end_detail;
  output.prompt_tokens = request.num_prompt_tokens;
  output.cached_tokens = request.num_cached_tokens;
  output.output_tokens = request.num_told_tokens();
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
  record.number = static_cast<uint32_t>(request.arrival);
  record.finish = name(*request.finish);
  record.arrival_ns = request.arrival_ns;
  record.first_scheduled_ns = request.first_scheduled_ns;
  record.first_token_ns = request.first_token_ns;
  record.end_ns = now_ns();
  record.prompt_tokens = request.num_prompt_tokens;
  record.cached_tokens = request.num_cached_tokens;
  record.recomputed_tokens = request.num_recomputed_tokens;
  record.output_tokens = request.num_told_tokens();
  record.preemptions = request.num_preemptions;
  record.priority = request.priority;
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
  if (found->second->constraint) {
    --num_constrained_;
    grammar_rows_.remove(*found->second);
  }
  if (num_open_steps_ > 0) {
    const size_t newest = (oldest_step_ + num_open_steps_ - 1) % steps_.size();
    steps_[newest].ended.push_back(std::move(found->second));
  }
  requests_.erase(found);
}

}  // namespace minfer
