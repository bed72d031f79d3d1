#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/api/answer/answer_writer.h"
#include "server/api/fields/api_error.h"
#include "server/api/request/completion_request.h"
#include "server/http/event_loop.h"
#include "server/http/http_message.h"
#include "server/serving/engine/metrics.h"

namespace minfer {

/// The engine's id of a choice of the request `id`.
std::string engine_id_of(const std::string& id, const CompletionRequest& request, int32_t choice);

/// A completion request under way: takes the outputs of its choices and answers the client, as a stream
/// or as a whole. I/O thread; owned by shared pointers. The context, the metrics and the loop outlive it.
///
/// If the client takes a stream more slowly than the engine gives it, outputs wait here, as tokens and
/// not yet as JSON, and are sent when there is room. The answer's size, which ApiLimits::max_answer_bytes
/// bounds, bounds what waits; HttpLimits::write_timeout and its least rate bound the time.
class CompletionJob : public std::enable_shared_from_this<CompletionJob> {
 public:
  CompletionJob(TaskRunner& loop, std::shared_ptr<HttpExchange> exchange, CompletionRequest request,
                std::string id, int64_t arrival_ns, const ApiContext& context, Metrics& metrics);
  CompletionJob(const CompletionJob&) = delete;
  CompletionJob& operator=(const CompletionJob&) = delete;

  /// The engine's requests, one for each choice, and their ids.
  std::vector<Request> engine_requests() const;
  const std::vector<std::string>& engine_ids() const { return engine_ids_; }

  /// Takes an output of a choice; outputs that come before they can be sent become one event, up to a length.
  void take(int32_t choice, RequestOutput output);
  /// Sends the outputs taken, as far as the client has room for them; the rest follows by itself.
  void send();
  /// Sends an event without meaning if the stream has been quiet for `quiet_time`: proxies close streams that they take for dead.
  void keep_open(int64_t now_ns, std::chrono::nanoseconds quiet_time);
  /// Ends the answer with an error, at any point.
  void fail(const ApiError& error);
  /// True if it is answered with an error: later outputs of its choices are of no use.
  bool failed() const { return failed_; }
  /// The engine's ids of choices whose answers ended before their last outputs; each once.
  std::vector<std::string> take_unwanted() { return std::exchange(unwanted_, {}); }
  /// Calls `callback` at most once, when the answer is over, with what was malformed in it.
  void on_problem(std::function<void(const std::string& problem)> callback) {
    on_problem_ = std::move(callback);
  }
  /// True if the client has gone: nothing more is sent.
  bool abandoned() const { return exchange_->is_closed(); }

 private:
  struct Choice {
    TokenTimes times;
    RequestOutput* last_unsent = nullptr;  ///< its newest output in unsent_; null: it has none there
    bool unwanted = false;                 ///< later outputs are dropped
  };

  void write_next(std::string& events);
  void send_stream();
  void send_events(const std::string& events);
  void send_whole();
  void end_answer();
  void add_times_header();
  void wait_for_client();

  TaskRunner& loop_;
  std::shared_ptr<HttpExchange> exchange_;
  const CompletionRequest request_;
  std::vector<std::string> engine_ids_;  ///< by choice
  Metrics& metrics_;
  std::vector<Choice> choices_;
  int32_t num_unfinished_;      ///< choices
  int32_t longest_choice_ = 0;  ///< its tokens so far
  AnswerTimes times_;
  std::deque<std::pair<int32_t, RequestOutput>> unsent_;  ///< outputs to send, each with its choice
  const std::shared_ptr<ClientWait> client_wait_ = std::make_shared<ClientWait>();  ///< of all choices
  const std::unique_ptr<AnswerWriter> answer_;
  std::vector<std::string> unwanted_;
  std::function<void(const std::string& problem)> on_problem_;
  int64_t last_sent_ns_;    ///< of the stream, or the request's arrival
  bool answering_ = false;  ///< the stream's head is sent
  bool answered_ = false;   ///< nothing more is to be sent
  bool failed_ = false;
};

}  // namespace minfer
