#include "server/serving/completion_job.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "server/serving/answer.h"

namespace minfer {
namespace {

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

CompletionJob::CompletionJob(std::shared_ptr<HttpExchange> exchange, CompletionRequest request,
                             std::string id, int64_t arrival_ns, const ApiContext& context, Metrics& metrics)
    : exchange_(std::move(exchange)),
      request_(std::move(request)),
      id_(std::move(id)),
      metrics_(metrics),
      choices_(static_cast<size_t>(request_.num_choices())),
      num_unfinished_(request_.num_choices()) {
  const ResponseIdentity identity{.id = id_, .created = static_cast<int64_t>(std::time(nullptr))};
  if (request_.stream) {
    stream_.emplace(request_, identity, context);
  } else {
    whole_.emplace(request_, identity, context);
  }
  for (Choice& choice : choices_)
    choice.times.arrival_ns = arrival_ns;
  metrics_.count_request(request_.n, request_.sampling.max_tokens);
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
  return requests;
}

void CompletionJob::take(int32_t choice_index, RequestOutput output) {
  Choice& choice = choices_[static_cast<size_t>(choice_index)];
  metrics_.count_output(output, choice.times);
  longest_choice_ = std::max(longest_choice_, output.output_tokens);
  if (output.finish && --num_unfinished_ == 0) metrics_.count_answer(longest_choice_);
  if (choice.unsent) {
    append(*choice.unsent, std::move(output));
  } else {
    choice.unsent = std::move(output);
    unsent_.push_back(choice_index);
  }
}

void CompletionJob::send() {
  if (!unsent_.empty() && !answered_ && !abandoned()) {
    try {
      stream_ ? send_stream() : send_whole();
    } catch (const ApiError& error) {
      fail(error);
    } catch (const std::exception& error) {
      fail(server_error(error.what()));
    }
  }
  for (const int32_t index : unsent_)
    choices_[static_cast<size_t>(index)].unsent.reset();
  unsent_.clear();
}

void CompletionJob::send_stream() {
  std::string events;
  for (const int32_t index : unsent_) {
    const RequestOutput& output = *choices_[static_cast<size_t>(index)].unsent;
    if (const std::optional<ApiError> failure = failure_of(output)) {
      if (!events.empty()) send_events(events);
      throw *failure;
    }
    stream_->append(index, output, events);
  }
  send_events(events);
  if (stream_->finished()) {
    answered_ = true;
    exchange_->end();
  }
}

void CompletionJob::send_events(const std::string& events) {
  if (!answering_) {
    answering_ = true;
    exchange_->begin_stream({.content_type = "text/event-stream; charset=utf-8",
                             .headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}}});
  }
  exchange_->write(events);
}

void CompletionJob::send_whole() {
  for (const int32_t index : unsent_)
    whole_->add(index, *choices_[static_cast<size_t>(index)].unsent);
  if (!whole_->finished()) return;
  answered_ = true;
  exchange_->respond({.body = whole_->body()});
}

void CompletionJob::fail(const ApiError& error) {
  if (answered_ || abandoned()) return;
  answered_ = true;
  failed_ = true;
  // One that fails before anything was sent can still have the right status.
  if (!answering_) return answer(*exchange_, error);
  std::string events;
  stream_->append_error(error, events);
  exchange_->write(events);
  exchange_->end();
}

}  // namespace minfer
