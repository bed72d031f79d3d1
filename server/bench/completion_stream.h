#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "profiling/json/json_field.h"
#include "server/bench/http_client.h"
#include "server/bench/load_metrics.h"

namespace minfer {

/// Parses a stream of server-sent events, however its bytes are cut into pieces (WHATWG HTML, section "Server-sent
/// events"): lines end with LF, CRLF or CR, a line that begins with ':' is a comment, an empty line ends an event.
/// Keeps only the data of events; LF joins its lines. Text after the last empty line is not an event.
class SseParser {
 public:
  /// Calls on_data(std::string_view) for every event with data that ends within `piece`. The view holds during the call.
  template <class OnData>
  void feed(std::string_view piece, OnData on_data) {
    while (!piece.empty()) {
      if (!take_line(piece)) continue;
      on_data(std::string_view(data_));
      data_.clear();
    }
  }

 private:
  /// Takes a line, or its part so far. True if it ends an event, whose data is then in data_.
  bool take_line(std::string_view& piece);
  bool end_line();

  std::string line_;  ///< the part of a line that has come so far
  std::string data_;  ///< of the event that is open
  bool has_data_ = false;
  bool after_cr_ = false;  ///< the last line ended with CR, to which an LF may still belong
};

/// Reads the streamed answer to one completion request of OpenAI's API, on its HttpClient's thread. Responses with output are counted as
/// in vLLM's benchmark: each event with a choice, even with empty text; in chats none that only names the role or the reason for the end.
/// An event costs 0.4 us (tests/benchmarks/load_generator_benchmark.cpp).
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
  bool holds_output(const simdjson::dom::element& choice) const;

  bool is_chat_;
  bool keep_text_;
  std::function<void()> on_done_;
  int status_ = 0;
  SseParser events_;
  simdjson::dom::parser parser_;
  std::string body_;          ///< body of an answer that is not a stream, cut
  std::string stream_error_;  ///< the error object of an event
  RequestRecord record_;
};

/// The error that an OpenAI-like server reports: error.message of a body or event, otherwise the start of it.
std::string error_message(std::string_view body);

}  // namespace minfer
