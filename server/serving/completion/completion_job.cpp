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

bool fits_behind(const RequestOutput& output, const RequestOutput& next) {
  return output.logprobs.size() + next.logprobs.size() <= kEventTokens;
}

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
      id_(std::move(id)),
      metrics_(metrics),
      choices_(static_cast<size_t>(request_.num_choices())),
      num_unfinished_(request_.num_choices()),
      answer_(request_.dialect->answer(request_, {.id = id_, .created = std::time(nullptr)}, context,
                                       request_.stream)),
      last_sent_ns_(arrival_ns) {
  for (Choice& choice : choices_)
    choice.times.arrival_ns = arrival_ns;
  metrics_.count_request(request_.n, request_.sampling.max_tokens);
  exchange_->on_over([wait = client_wait_] { wait->finish(now_ns()); });
}

std::vector<std::string> CompletionJob::engine_ids() const {
  std::vector<std::string> ids;
  for (int32_t choice = 0; choice < request_.num_choices(); ++choice)
    ids.push_back(engine_id_of(id_, request_, choice));
  return ids;
}

std::vector<Request> CompletionJob::engine_requests() const {
  std::vector<Request> requests;
  for (int32_t choice = 0; choice < request_.num_choices(); ++choice)
    requests.push_back(request_.engine_request(choice, engine_id_of(id_, request_, choice)));
  for (Request& request : requests)
    request.client_wait = client_wait_;
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
  if (choice.unsent.empty()) unsent_.push_back(choice_index);
  if (!choice.unsent.empty() && fits_behind(choice.unsent.back(), output)) {
    append(choice.unsent.back(), std::move(output));
  } else {
    choice.unsent.push_back(std::move(output));
  }
}

void CompletionJob::send() {
  if (answered_ || abandoned()) return drop_unsent();
  try {
    request_.stream ? send_stream() : send_whole();
  } catch (const std::exception& error) {
    fail(failure(error));
  }
}

std::pair<int32_t, RequestOutput> CompletionJob::next_unsent() {
  const int32_t index = unsent_.front();
  unsent_.pop_front();
  std::deque<RequestOutput>& outputs = choices_[static_cast<size_t>(index)].unsent;
  RequestOutput output = std::move(outputs.front());
  outputs.pop_front();
  if (!outputs.empty()) unsent_.push_back(index);
  return {index, std::move(output)};
}

void CompletionJob::drop_unsent() {
  for (const int32_t index : std::exchange(unsent_, {}))
    choices_[static_cast<size_t>(index)].unsent.clear();
}

/// Ends a choice whose answer is over if the engine does not know that yet.
void CompletionJob::write(int32_t index, RequestOutput output, std::string& events) {
  const bool is_last = output.finish.has_value();
  answer_->take(index, std::move(output), events);
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (is_last || !answer_->ended(index) || std::exchange(choice.unwanted, true)) return;
  choice.unsent.clear();
  std::erase(unsent_, index);
  unwanted_.push_back(engine_id_of(id_, request_, index));
}

void CompletionJob::send_stream() {
  if (exchange_->has_room()) client_wait_->end(now_ns());
  while (!unsent_.empty() && exchange_->has_room()) {
    std::string events;
    while (!unsent_.empty() && events.size() < kWriteBytes) {
      auto [index, output] = next_unsent();
      if (const std::optional<ApiError> failure = failure_of(output)) {
        if (!events.empty()) send_events(events);
        throw *failure;
      }
      write(index, std::move(output), events);
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
  while (!unsent_.empty()) {
    auto [index, output] = next_unsent();
    write(index, std::move(output), none);
  }
  if (!answer_->finished()) return;
  end_answer();
  add_times_header();
  std::string first = answer_->next_piece();
  if (answer_->written()) return exchange_->respond({.body = std::move(first)});
  send_in_pieces(loop_, exchange_, first, [self = shared_from_this()](std::string& text) {
    text = self->answer_->next_piece();
    return !self->answer_->written();
  });
}

void CompletionJob::fail(const ApiError& error) {
  if (answered_ || abandoned()) return;
  answered_ = true;
  failed_ = true;
  drop_unsent();
  // An answer that fails before anything was sent can still have the right status.
  if (!answering_) return answer_error(*exchange_, error);
  std::string events;
  answer_->append_error(error, events);
  exchange_->write(events);
  exchange_->end();
}

}  // namespace minfer
