#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/http_url.h"

namespace minfer {

/// Takes the response to one request. HttpClient calls on_status, on_body
/// any number of times, and always on_end last, on the thread that runs it.
class HttpResponseHandler {
 public:
  virtual ~HttpResponseHandler() = default;
  virtual void on_status(int status) = 0;
  /// A piece of the body. `time_ns`: when it was read, by now_ns().
  virtual void on_body(std::string_view bytes, int64_t time_ns) = 0;
  /// `error` empty: the response is complete. Otherwise the connection's failure, in
  /// the same words for every request with that failure. May send further requests.
  virtual void on_end(const std::string& error) = 0;
};

/// An HTTP/1.1 client for many requests at once to one server. Each request under way has a connection; connections are reused. If
/// a kept connection fails before any of the response came (the server had closed it), the request is sent once more on a new one.
///
/// Everything happens on the thread that calls run_until().
class HttpClient {
 public:
  /// Resolves the host's name. Throws Error if that fails.
  explicit HttpClient(const HttpUrl& url);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Sends `message`, a whole request (see http_request). `handler` lives until its on_end.
  void send(std::string message, HttpResponseHandler& handler);

  /// Ends a request that is under way: closes its connection and calls on_end(error).
  void abort(HttpResponseHandler& handler, const std::string& error);

  /// Sends and receives until now_ns() reaches `deadline_ns` or stop() is called.
  void run_until(int64_t deadline_ns);
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// A request as sent. `headers`: "Name: value\r\n" for each header
/// beyond Host and those of the body. `body` empty: none is sent.
std::string http_request(std::string_view method, const HttpUrl& url, std::string_view target,
                         std::string_view headers, std::string_view body);

}  // namespace minfer
