#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http/http_message.h"
#include "server/openai/api_error.h"
#include "server/openai/openai_request.h"
#include "server/openai/openai_response.h"
#include "server/serving/metrics.h"

namespace minfer {

/// The id by which the engine knows a choice of the request with that id.
std::string engine_id_of(const std::string& id, const CompletionRequest& request, int32_t choice);

/// A completion request on its way: takes the outputs of its choices and answers the client, as a stream or
/// in one piece. I/O thread. The context outlives it.
class CompletionJob {
 public:
  CompletionJob(std::shared_ptr<HttpExchange> exchange, CompletionRequest request, std::string id,
                int64_t arrival_ns, const ApiContext& context, Metrics& metrics);
  CompletionJob(const CompletionJob&) = delete;
  CompletionJob& operator=(const CompletionJob&) = delete;

  /// What the engine is asked for, a request a choice, and their ids.
  std::vector<Request> engine_requests() const;
  std::vector<std::string> engine_ids() const;

  /// Takes what came for a choice; outputs that come between two calls of send() become one event.
  void take(int32_t choice, RequestOutput output);
  /// Sends what was taken.
  void send();
  /// Ends the answer with an error, wherever it stands.
  void fail(const ApiError& error);
  /// It was answered with an error: what its choices still give is of no use.
  bool failed() const { return failed_; }
  /// The client has gone: nothing is sent any more.
  bool abandoned() const { return exchange_->is_closed(); }

 private:
  struct Choice {
    TokenTimes times;
    std::optional<RequestOutput> unsent;
  };

  void send_stream();
  void send_events(const std::string& events);
  void send_whole();

  std::shared_ptr<HttpExchange> exchange_;
  const CompletionRequest request_;
  const std::string id_;
  Metrics& metrics_;
  std::vector<Choice> choices_;
  int32_t num_unfinished_;       ///< choices
  int32_t longest_choice_ = 0;   ///< its tokens so far
  std::vector<int32_t> unsent_;  ///< choices that have something to send, in order of arrival
  std::optional<StreamWriter> stream_;
  std::optional<ResponseBuilder> whole_;
  bool answering_ = false;  ///< the stream's head is sent
  bool answered_ = false;   ///< nothing more is to be sent
  bool failed_ = false;
};

}  // namespace minfer
