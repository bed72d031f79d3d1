#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minfer {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string
      id;  ///< the client's x-request-id if it is a decent one, else drawn; in every answer and log line
  std::string method;   ///< upper case
  std::string path;     ///< without the query
  std::string query;    ///< behind the '?'
  HttpHeaders headers;  ///< names in lower case
  std::string body;
  std::string remote;  ///< the client's address and port

  /// Whether reading the body may take long: seconds, if it is to be tokenised.
  bool has_large_body() const { return body.size() > (64u << 10); }
  /// Empty if there is none.
  std::string_view header(std::string_view lower_case_name) const;
  /// Value of `name` in the query, percent-decoded; empty if there is none.
  std::string query_value(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  HttpHeaders headers = {};  ///< further ones
};

/// What became of an exchange, for the access log.
struct HttpOutcome {
  int status = 0;  ///< 0: the client was gone before there was an answer
  uint64_t sent_bytes = 0;
  int64_t duration_ns = 0;
  bool aborted = false;  ///< the client went, or was too slow, before the end
};

/// One request and its answer. Lives on the I/O thread and stays valid as long as somebody holds it; once the
/// client is gone, answering does nothing.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual HttpRequest& request() = 0;
  /// Lets go of the request's body, which counts against HttpLimits::all_bodies_bytes as long as it is there.
  /// I/O thread.
  virtual void drop_body() = 0;
  /// Answers in one piece.
  virtual void respond(HttpResponse response) = 0;
  /// Answers piece by piece: head (its body is empty), any number of write(), end().
  virtual void begin_stream(HttpResponse head) = 0;
  /// Pieces that come together are sent together. A client that lags more than HttpLimits::write_buffer_bytes
  /// behind is dropped.
  virtual void write(std::string_view text) = 0;
  virtual void end() = 0;
  /// Whether the client went before the answer's end.
  virtual bool is_closed() const = 0;
  /// `callback` is called once if that happens from now on.
  virtual void on_closed(std::function<void()> callback) = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

}  // namespace minfer
