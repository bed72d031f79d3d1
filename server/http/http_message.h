#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minfer {

/// ASCII alone.
std::string lower_case(std::string_view text);

/// `text` without the escapes of URLs (%2F). Anything that is not an escape stays as it is.
std::string percent_decoded(std::string_view text);

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string
      id;  ///< the client's x-request-id if it is acceptable, else a drawn one; in every answer and log line
  std::string method;   ///< upper case
  std::string path;     ///< without the query
  std::string query;    ///< behind the '?'
  HttpHeaders headers;  ///< names in lower case
  std::string body;
  std::string remote;  ///< the client's address and port

  /// True if reading the body may take long: seconds, if it is to be tokenised.
  bool has_large_body() const { return body.size() > (64u << 10); }
  /// Empty if there is none.
  std::string_view header(std::string_view lower_case_name) const;
  /// Value of `name` in the query, percent-decoded; empty if there is none.
  std::string query_value(std::string_view name) const;
};

/// The fault of a request's head: the status and a message.
using HttpFault = std::pair<int, std::string>;

/// Sets path and query of a request whose other members are set. Checks what Boost.Beast leaves open: where the body ends,
/// and which host is asked (RFC 9112, sections 3.2 and 6). A target in absolute form names the host, whatever Host says.
std::optional<HttpFault> take_target(HttpRequest& request, std::string_view target, bool http_1_0);

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  HttpHeaders headers = {};  ///< further headers
};

/// The outcome of an exchange, for the access log.
struct HttpOutcome {
  int status = 0;  ///< 0: the client was gone before there was an answer
  uint64_t sent_bytes = 0;
  int64_t duration_ns = 0;
  bool aborted = false;  ///< the client went, or was too slow, before the end
};

/// One request and its answer. It stays valid as long as somebody holds it; once the client is gone, answering does nothing.
///
/// Threads. An exchange belongs to the I/O thread, which calls all of its functions. Only request() may be called, and
/// read from, on other threads, until the I/O thread drops the body or answers. References. The connection holds one
/// until the answer is sent or the client is gone. A handler that answers later holds another, and so do its tasks on
/// other threads: parsing in the background, the engine's tasks between two steps. The last reference may be dropped
/// on any thread and at any time: the I/O thread destroys the exchange all the same. So one thread alone changes what
/// goes with it (its share of the budget for bodies, its callbacks and what they hold), and no lock is needed.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual HttpRequest& request() = 0;
  /// Adds a header to the answer, whichever function gives the answer. Before the answer's head is sent; I/O thread.
  void add_header(std::string name, std::string value) {
    headers_.emplace_back(std::move(name), std::move(value));
  }
  const HttpHeaders& headers() const { return headers_; }
  /// Keeps `object` as long as the exchange itself. I/O thread.
  void keep(std::shared_ptr<const void> object) { kept_ = std::move(object); }
  /// Frees the request's body, which counts against HttpLimits::all_bodies_bytes until
  /// then. For answers that come later: call it as soon as nobody reads the body any more.
  virtual void drop_body() = 0;
  /// Counts bytes held for the request or its answer against the same limit, until the exchange goes. False: no room. I/O thread.
  virtual bool hold(size_t bytes) = 0;
  /// Answers in one piece.
  virtual void respond(HttpResponse response) = 0;
  /// Answers piece by piece: head (its body is empty), any number of write(), end().
  virtual void begin_stream(HttpResponse head) = 0;
  /// Writes a piece; pieces that come together are sent together. Any amount is taken: ask has_room() first.
  virtual void write(std::string_view text) = 0;
  virtual void end() = 0;
  /// Gives up an answer that cannot be completed: closes the connection, which tells the client so.
  virtual void abort() = 0;
  /// True if the client keeps up: fewer than HttpLimits::write_buffer_bytes of written bytes wait for it.
  virtual bool has_room() const = 0;
  /// If there is no room: calls `callback` once, when half of the room is free again. A later callback replaces an earlier one.
  virtual void on_room(std::function<void()> callback) = 0;
  /// True if the client went before the answer's end.
  virtual bool is_closed() const = 0;
  /// Calls `callback` once if that happens from now on.
  virtual void on_closed(std::function<void()> callback) = 0;
  /// Calls `callback` once when the client has taken the whole answer, or has gone. Bytes that the system has taken count as taken.
  virtual void on_over(std::function<void()> callback) = 0;

 private:
  HttpHeaders headers_;
  std::shared_ptr<const void> kept_;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

}  // namespace minfer
