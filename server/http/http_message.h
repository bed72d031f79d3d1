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

/// What is wrong with a request's head: the status and the words to say so.
using HttpFault = std::pair<int, std::string>;

/// Sets path and query of a request whose other members are there, and checks what Boost.Beast leaves open: where the body ends, and
/// who is asked (RFC 9112, sections 3.2 and 6). A target in absolute form names the host, whatever Host says.
std::optional<HttpFault> take_target(HttpRequest& request, std::string_view target, bool http_1_0);

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

/// One request and its answer. It stays valid as long as somebody holds it; once the client is gone, answering does nothing.
///
/// Threads. An exchange belongs to the I/O thread: all of its functions are called there, but for request(), which others may call and read
/// from until the I/O thread drops the body or answers. References. The connection holds one until the answer is sent or the client is
/// gone. A handler that answers later holds another, and so do the tasks that work for it on other threads: parsing in the background, the
/// engine's between two steps. Whoever is last may drop the last reference, on any thread and at any time: the exchange is then destroyed
/// by the I/O thread all the same. What goes with it (its share of the budget for bodies, its callbacks and what they hold) is therefore
/// changed by one thread alone and needs no lock.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual HttpRequest& request() = 0;
  /// A further header of the answer, whoever gives it. Before its head is sent; I/O thread.
  void add_header(std::string name, std::string value) {
    headers_.emplace_back(std::move(name), std::move(value));
  }
  const HttpHeaders& headers() const { return headers_; }
  /// Lets go of the request's body, which counts against HttpLimits::all_bodies_bytes as long as it is there.
  /// For answers that come later, as soon as nobody reads it any more.
  virtual void drop_body() = 0;
  /// Counts bytes held of the request or for its answer against the same limit, until the exchange goes. False: no room. I/O thread.
  virtual bool hold(size_t bytes) = 0;
  /// Answers in one piece.
  virtual void respond(HttpResponse response) = 0;
  /// Answers piece by piece: head (its body is empty), any number of write(), end().
  virtual void begin_stream(HttpResponse head) = 0;
  /// Pieces that come together are sent together. Any amount is taken: ask has_room() first.
  virtual void write(std::string_view text) = 0;
  virtual void end() = 0;
  /// The answer cannot be completed: closes the connection, which tells the client so.
  virtual void abort() = 0;
  /// Whether the client keeps up: less than HttpLimits::write_buffer_bytes of what was written waits for it.
  virtual bool has_room() const = 0;
  /// Where there is no room: `callback` is called once, when half of it is free again. Of two the later counts.
  virtual void on_room(std::function<void()> callback) = 0;
  /// Whether the client went before the answer's end.
  virtual bool is_closed() const = 0;
  /// `callback` is called once if that happens from now on.
  virtual void on_closed(std::function<void()> callback) = 0;
  /// `callback` is called once when the client has taken the whole answer, or has gone. What the system has taken for it counts.
  virtual void on_over(std::function<void()> callback) = 0;

 private:
  HttpHeaders headers_;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

}  // namespace minfer
