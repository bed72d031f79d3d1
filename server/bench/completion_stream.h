#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "server/bench/http_client.h"
#include "server/bench/load_metrics.h"
#include "server/bench/sse_parser.h"

namespace minfer {

/// Reads the streamed answer to one completion request of OpenAI's API and keeps what a load test needs of
/// it. What counts as a response with output is what counts for vLLM's benchmark: each event with a choice,
/// also one whose text is empty; but in chats the ones that only name the role or the reason for the end do
/// not.
///
/// Used on the thread of its HttpClient.
class CompletionStream : public HttpResponseHandler {
 public:
  /// `on_done` is called once, when the record is complete. It may destroy this object.
  CompletionStream(bool is_chat, bool keep_text, std::function<void()> on_done);

  RequestRecord& record() { return record_; }

  void on_status(int status) override { status_ = status; }
  void on_body(std::string_view bytes, int64_t time_ns) override;
  void on_end(const std::string& error) override;

 private:
  void on_event(std::string_view data, int64_t time_ns);
  bool holds_output(std::string_view choice) const;
  void add_text(std::string_view choice);
  void conclude(const std::string& transport_error);

  bool is_chat_;
  bool keep_text_;
  std::function<void()> on_done_;
  int status_ = 0;
  SseParser events_;
  std::string body_;          ///< of an answer that is no stream, cut
  std::string stream_error_;  ///< the error object of an event
  RequestRecord record_;
};

/// What an OpenAI-like server says went wrong: error.message of a body or event, otherwise the start of it.
std::string error_message(std::string_view body);

}  // namespace minfer
