#include "server/serving/completion/completion_job.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include <fmt/format.h>

#include "kernels/base/clock.h"
#include "server/http/piece_sender.h"
#include "server/routes/router.h"

namespace minfer {
namespace {

/// The most tokens with logprobs of one event, and the most bytes of events that are written
/// together: for these, one client's stream holds up the others for about a millisecond.
constexpr size_t kEventTokens = 64;
constexpr size_t kWriteBytes = 64u << 10;

/// Appends the next output of the same choice.
void append(RequestOutput& output, RequestOutput next) {
  output.text += next.text;
  std::ranges::move(next.tokens, std::back_inserter(output.tokens));
  std::ranges::move(next.logprobs, std::back_inserter(output.logprobs));
  next.text = std::move(output.text);
  next.tokens = std::move(output.tokens);
  next.logprobs = std::move(output.logprobs);
  next.prompt_logprobs = std::move(output.prompt_logprobs);
  output = std::move(next);
}

}  // namespace

std::string engine_id_of(const std::string& id, const CompletionRequest& request, int32_t choice) {
  return request.num_choices() == 1 ? id : fmt::format("{}/{}", id, choice);
}

CompletionJob::CompletionJob(TaskRunner& loop, std::shared_ptr<HttpExchange> exchange,
                             CompletionRequest request, std::string id, int64_t arrival_ns,
                             const ApiContext& context, Metrics& metrics)
    : loop_(loop),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      metrics_(metrics),
      choices_(static_cast<size_t>(request_.num_choices())),
      num_unfinished_(request_.num_choices()),
      answer_(request_.dialect->answer(request_, {.id = id, .created = std::time(nullptr)}, context,
                                       request_.stream)),
      last_sent_ns_(arrival_ns) {
  for (int32_t i = 0; i < num_unfinished_; ++i) {
    engine_ids_.push_back(engine_id_of(id, request_, i));
    choices_[static_cast<size_t>(i)].times.arrival_ns = arrival_ns;
  }
  metrics_.count_request(request_.n, request_.sampling.max_tokens);
  exchange_->on_over([wait = client_wait_] { wait->finish(now_ns()); });
}

std::vector<Request> CompletionJob::engine_requests() const {
  std::vector<Request> requests;
  for (const std::string& id : engine_ids_) {
    requests.push_back(request_.engine_request(static_cast<int32_t>(requests.size()), id));
    requests.back().client_wait = client_wait_;
  }
  return requests;
}

void CompletionJob::take(int32_t choice_index, RequestOutput output) {
  Choice& choice = choices_[static_cast<size_t>(choice_index)];
  metrics_.count_output(output, choice.times);
  times_.take_slower(output);
  longest_choice_ = std::max(longest_choice_, output.output_tokens);
  if (output.finish && --num_unfinished_ == 0) metrics_.count_answer(longest_choice_);
  if (answered_ || choice.unwanted || abandoned()) return;
  if (failure_of(output)) failed_ = true;
  if (choice.last_unsent != nullptr &&
      choice.last_unsent->logprobs.size() + output.logprobs.size() <= kEventTokens)
    return append(*choice.last_unsent, std::move(output));
  choice.last_unsent = &unsent_.emplace_back(choice_index, std::move(output)).second;
}

void CompletionJob::send() {
  if (answered_ || abandoned()) return unsent_.clear();
  try {
    request_.stream ? send_stream() : send_whole();
  } catch (const std::exception& error) {
    fail(failure(error));
  }
}

/// Writes the events of the next output. Ends a choice whose answer is over if the engine does not know that yet.
void CompletionJob::write_next(std::string& events) {
  auto [index, output] = std::move(unsent_.front());
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (choice.last_unsent == &unsent_.front().second) choice.last_unsent = nullptr;
  unsent_.pop_front();
  if (choice.unwanted) return;
  const bool is_last = output.finish.has_value();
  answer_->take(index, std::move(output), events);
  if (is_last || !answer_->ended(index)) return;
  choice.unwanted = true;
  unwanted_.push_back(engine_ids_[static_cast<size_t>(index)]);
}

void CompletionJob::send_stream() {
  if (exchange_->has_room()) client_wait_->end(now_ns());
  while (!unsent_.empty() && exchange_->has_room()) {
    std::string events;
    try {
      while (!unsent_.empty() && events.size() < kWriteBytes)
        write_next(events);
    } catch (const ApiError&) {
      if (!events.empty()) send_events(events);
      throw;
    }
    if (!events.empty()) send_events(events);
  }
  if (answer_->finished()) {
    end_answer();
    exchange_->end();
  } else if (!unsent_.empty()) {
    wait_for_client();
    exchange_->on_room([self = shared_from_this()] { self->send(); });
  }
}

void CompletionJob::end_answer() {
  answered_ = true;
  if (const std::string problem = answer_->problem(); on_problem_ && !problem.empty()) on_problem_(problem);
  wait_for_client();
}

/// The rest of the answer waits for nothing else from now on.
void CompletionJob::wait_for_client() {
  if (!client_wait_->is_waiting()) client_wait_->begin(now_ns());
}

/// W3C's Server-Timing, in milliseconds, with the times known so far. A stream's head leaves with
/// its first token, so it has no time of decoding, and none at all if a comment came before.
void CompletionJob::add_times_header() {
  if (times_.prompt_ns == 0) return;
  const auto entry = [](std::string_view name, int64_t ns) {
    return fmt::format("{};dur={:.3f}", name, static_cast<double>(ns) * 1e-6);
  };
  std::string text = entry("queue", times_.queue_ns) + ", " + entry("prefill", times_.prompt_ns);
  if (!request_.stream) text += ", " + entry("decode", times_.predicted_ns);
  exchange_->add_header("server-timing", std::move(text));
}

void CompletionJob::send_events(const std::string& events) {
  if (!answering_) {
    answering_ = true;
    add_times_header();
    exchange_->begin_stream({.content_type = std::string(request_.dialect->stream_type),
                             .headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}}});
  }
  last_sent_ns_ = now_ns();
  exchange_->write(events);
}

void CompletionJob::keep_open(int64_t now_ns, std::chrono::nanoseconds quiet_time) {
  if (!request_.stream || answered_ || abandoned() || !exchange_->has_room()) return;
  if (now_ns - last_sent_ns_ >= quiet_time.count()) send_events(answer_->idle_event());
}

void CompletionJob::send_whole() {
  std::string none;
  while (!unsent_.empty())
    write_next(none);
  if (!answer_->finished()) return;
  end_answer();
  add_times_header();
  std::string first;
  if (!answer_->next_piece(first)) return exchange_->respond({.body = std::move(first)});
  exchange_->begin_stream({});
  exchange_->write(first);
  send_in_pieces(loop_, exchange_,
                 [self = shared_from_this()](std::string& text) { return self->answer_->next_piece(text); });
}

void CompletionJob::fail(const ApiError& error) {
  if (answered_ || abandoned()) return;
  answered_ = true;
  failed_ = true;
  unsent_.clear();
  // An answer that fails before anything was sent can still have the right status.
  if (!answering_) return answer_error(*exchange_, error);
  std::string events;
  answer_->append_error(error, events);
  exchange_->write(events);
  exchange_->end();
}

}  // namespace minfer
