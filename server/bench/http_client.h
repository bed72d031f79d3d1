#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// Takes the response to one request. The thread that runs HttpClient calls on_status, on_body any number of times, and always on_end last.
/// Only on_end may throw.
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

struct HttpMessage {
  std::string target;                     ///< the path, which the client puts behind its server's URL
  std::string body = {};                  ///< empty: a GET request, else a POST request with this JSON
  std::vector<std::string> headers = {};  ///< "Name: value", beyond the client's
};

/// The whole answer to one request.
struct HttpAnswer {
  int status = 0;
  std::string body;   ///< its first 16 MiB
  std::string error;  ///< see HttpResponseHandler::on_end()
};

/// A client sends no credentials and takes answers as they are, unless these say otherwise.
struct HttpClientOptions {
  std::vector<std::string> headers =
      {};  ///< "Name: value" of each request, beyond Host and those of the body
  /// At most 8 for a request, and none from https to http. on_status() then comes once for each answer.
  bool follows_redirects = false;
  bool uses_proxy = false;  ///< the one that http_proxy, https_proxy and no_proxy name
  /// Goes to the client's own server, not to another host or port that this one redirects to.
  std::string bearer_token = {};
};

/// An HTTP/1.1 client over libcurl for many requests at once to a server, on the thread that calls run_until(). Each request under way has
/// a connection; connections are reused. If a kept connection fails before any of the response came (the server had closed it), the request
/// is sent once more on a new one. Certificates of https are those of the system, or of the file that SSL_CERT_FILE names.
class HttpClient {
 public:
  /// `url` is http[s]://HOST[:PORT][/PATH]. Throws Error saying what is wrong with anything else: user names, queries.
  explicit HttpClient(const std::string& url, HttpClientOptions options = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// `handler` lives until its on_end.
  void send(HttpMessage message, HttpResponseHandler& handler);

  /// Ends a request that is under way: closes its connection and calls on_end(error). Not from a handler.
  void abort(HttpResponseHandler& handler, const std::string& error);

  /// Sends and receives until now_ns() reaches `deadline_ns` or stop() is called.
  void run_until(int64_t deadline_ns);
  void stop() { is_stopped_ = true; }

  /// Sends one request and waits for its answer; `late` is the error if there is none after `timeout_s`.
  HttpAnswer ask(HttpMessage message, int64_t timeout_s, const std::string& late);

 private:
  struct Request;
  // Called by curl, whose handles are void*.
  static int watch(void* easy, int socket, int what, void* self, void* known);
  static int set_timer(void* multi, long milliseconds, void* self);
  /// Takes a request out of those under way. Its connection closes unless the response was whole.
  std::unique_ptr<Request> take(HttpResponseHandler& handler);
  void end_requests();

  std::string url_;
  HttpClientOptions options_;
  int epoll_;
  void* multi_;
  std::map<HttpResponseHandler*, std::unique_ptr<Request>> active_;
  int64_t timer_ns_ = INT64_MAX;  ///< when curl wants to be called
  bool is_stopped_ = false;
};

}  // namespace minfer
