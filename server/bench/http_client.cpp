#include "server/bench/http_client.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <curl/curl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "server/http/descriptors.h"

namespace minfer {
namespace {

template <auto Free>
struct CurlDeleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using EasyHandle = std::unique_ptr<CURL, CurlDeleter<curl_easy_cleanup>>;
using HeaderList = std::unique_ptr<curl_slist, CurlDeleter<curl_slist_free_all>>;
using Url = std::unique_ptr<CURLU, CurlDeleter<curl_url_cleanup>>;

/// `text` without '/' at its end.
std::string server_url(const std::string& text) {
  constexpr std::string_view kExpected = "expected http[s]://HOST[:PORT][/PATH]";
  const Url url(curl_url());
  if (!text.starts_with("http://") && !text.starts_with("https://")) fail("{}: {}", text, kExpected);
  const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, text.c_str(), CURLU_DISALLOW_USER);
  if (code != CURLUE_OK) fail("{}: {}, {}", text, curl_url_strerror(code), kExpected);
  if (text.find_first_of("?#@") != std::string::npos) fail("{}: {} without user or query", text, kExpected);
  return text.substr(0, text.find_last_not_of('/') + 1);
}

/// Keeps the answer to HttpClient::ask().
class AnswerKeeper final : public HttpResponseHandler {
 public:
  AnswerKeeper(HttpClient& client, HttpAnswer& answer) : client_(client), answer_(answer) {}
  void on_status(int status) override { answer_.status = status; }
  void on_body(std::string_view bytes, int64_t) override {
    constexpr size_t kMostAnswerBytes = 16 << 20;
    answer_.body += bytes.substr(0, kMostAnswerBytes - std::min(kMostAnswerBytes, answer_.body.size()));
  }
  void on_end(const std::string& error) override {
    answer_.error = error;
    client_.stop();
  }

 private:
  HttpClient& client_;
  HttpAnswer& answer_;
};

}  // namespace

/// A request under way.
struct HttpClient::Request {
  HttpResponseHandler* handler = nullptr;
  HttpMessage message;
  EasyHandle easy;
  HeaderList headers;

  static size_t take_header(const char* bytes, size_t size, size_t count, void* self) noexcept {
    const std::string_view line(bytes, size * count);
    auto& own = *static_cast<Request*>(self);
    long status = 0;
    curl_easy_getinfo(own.easy.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || (line != "\r\n" && line != "\n")) return line.size();
    own.handler->on_status(static_cast<int>(status));
    return line.size();
  }

  static size_t take_body(const char* bytes, size_t size, size_t count, void* self) noexcept {
    const std::string_view piece(bytes, size * count);
    static_cast<Request*>(self)->handler->on_body(piece, now_ns());
    return piece.size();
  }

  /// The message for the end of a connection: the same for all requests with that failure.
  std::string describe(CURLcode code) const {
    long system_error = 0;
    curl_easy_getinfo(easy.get(), CURLINFO_OS_ERRNO, &system_error);
    switch (code) {
      case CURLE_OK:
        return "";
      case CURLE_COULDNT_CONNECT:
        return system_error == ECONNREFUSED ? "connection refused" : curl_easy_strerror(code);
      case CURLE_GOT_NOTHING:
      case CURLE_PARTIAL_FILE:
      case CURLE_RECV_ERROR:
      case CURLE_SEND_ERROR:
        return "connection closed by the server";
      case CURLE_WEIRD_SERVER_REPLY:
      case CURLE_UNSUPPORTED_PROTOCOL:
        return fmt::format("no valid HTTP: {}", curl_easy_strerror(code));
      default:
        return curl_easy_strerror(code);
    }
  }
};

HttpClient::HttpClient(const std::string& url, HttpClientOptions options)
    : url_(server_url(url)),
      options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      multi_(curl_multi_init()) {
  raise_descriptor_limit();  // beyond it: errors that say so
  if (epoll_ < 0) fail("epoll_create1: {}", std::strerror(errno));
  if (multi_ == nullptr) throw std::bad_alloc();
  curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &HttpClient::watch);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &HttpClient::set_timer);
  curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, 100'000L);  // each is kept
}

HttpClient::~HttpClient() {
  for (const auto& [handler, request] : active_)
    curl_multi_remove_handle(multi_, request->easy.get());
  curl_multi_cleanup(multi_);
  close(epoll_);
}

void HttpClient::send(HttpMessage message, HttpResponseHandler& handler) {
  auto request = std::make_unique<Request>();
  request->handler = &handler;
  request->message = std::move(message);
  request->easy.reset(curl_easy_init());
  if (request->easy == nullptr) throw std::bad_alloc();
  CURL* const easy = request->easy.get();
  const auto add_header = [&](const char* line) {
    curl_slist* const list = curl_slist_append(request->headers.get(), line);
    if (list == nullptr) throw std::bad_alloc();
    (void)request->headers.release();
    request->headers.reset(list);
  };
  for (const std::vector<std::string>* headers : {&options_.headers, &request->message.headers})
    for (const std::string& header : *headers)
      add_header(header.c_str());
  const std::string& body = request->message.body;
  if (!body.empty()) {
    add_header("Content-Type: application/json");
    add_header("Expect:");  // no question whether a long body is welcome
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.c_str());
  }
  curl_easy_setopt(easy, CURLOPT_URL, (url_ + request->message.target).c_str());
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, request->headers.get());
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  if (!options_.uses_proxy) curl_easy_setopt(easy, CURLOPT_PROXY, "");
  if (options_.follows_redirects) {
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(easy, CURLOPT_MAXREDIRS, 8L);
    curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, url_.starts_with("https:") ? "https" : "http,https");
  }
  if (!options_.bearer_token.empty()) {
    curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(easy, CURLOPT_XOAUTH2_BEARER, options_.bearer_token.c_str());
  }
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  if (const char* file = std::getenv("SSL_CERT_FILE")) curl_easy_setopt(easy, CURLOPT_CAINFO, file);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &Request::take_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, request.get());
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Request::take_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, request.get());
  curl_easy_setopt(easy, CURLOPT_PRIVATE, request.get());
  curl_multi_add_handle(multi_, easy);
  active_[&handler] = std::move(request);
}

void HttpClient::abort(HttpResponseHandler& handler, const std::string& error) {
  if (take(handler) != nullptr) handler.on_end(error);
}

void HttpClient::run_until(int64_t deadline_ns) {
  is_stopped_ = false;
  while (!is_stopped_) {
    const int64_t now = now_ns();
    if (now >= deadline_ns) break;
    const int64_t wait_ns = std::max<int64_t>(std::min(deadline_ns, timer_ns_) - now, 0);
    std::array<epoll_event, 256> events;
    const timespec wait{.tv_sec = wait_ns / 1'000'000'000, .tv_nsec = wait_ns % 1'000'000'000};
    const int count = epoll_pwait2(epoll_, events.data(), static_cast<int>(events.size()), &wait, nullptr);
    int running = 0;
    if (timer_ns_ <= now_ns()) {
      timer_ns_ = INT64_MAX;
      curl_multi_socket_action(multi_, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    for (int i = 0; i < count; ++i) {
      const uint32_t ready = events[static_cast<size_t>(i)].events;
      const int mask = ((ready & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
                       ((ready & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                       ((ready & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
      curl_multi_socket_action(multi_, events[static_cast<size_t>(i)].data.fd, mask, &running);
    }
    end_requests();
  }
}

HttpAnswer HttpClient::ask(HttpMessage message, int64_t timeout_s, const std::string& late) {
  HttpAnswer answer;
  AnswerKeeper keeper(*this, answer);
  send(std::move(message), keeper);
  run_until(now_ns() + timeout_s * 1'000'000'000);
  abort(keeper, late);
  return answer;
}

int HttpClient::watch(void*, int socket, int what, void* self, void* known) {
  auto& own = *static_cast<HttpClient*>(self);
  epoll_event event{.events = (what & CURL_POLL_IN ? uint32_t{EPOLLIN} : 0u) |
                              (what & CURL_POLL_OUT ? uint32_t{EPOLLOUT} : 0u),
                    .data = {.fd = socket}};
  if (what == CURL_POLL_REMOVE) return (void)epoll_ctl(own.epoll_, EPOLL_CTL_DEL, socket, &event), 0;
  epoll_ctl(own.epoll_, known == nullptr ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket, &event);
  curl_multi_assign(own.multi_, socket, self);
  return 0;
}

int HttpClient::set_timer(void*, long milliseconds, void* self) {
  static_cast<HttpClient*>(self)->timer_ns_ =
      milliseconds < 0 ? INT64_MAX : now_ns() + milliseconds * 1'000'000;
  return 0;
}

std::unique_ptr<HttpClient::Request> HttpClient::take(HttpResponseHandler& handler) {
  const auto found = active_.find(&handler);
  if (found == active_.end()) return nullptr;
  std::unique_ptr<Request> request = std::move(found->second);
  active_.erase(found);
  curl_multi_remove_handle(multi_, request->easy.get());
  return request;
}

void HttpClient::end_requests() {
  int left = 0;
  while (const CURLMsg* const message = curl_multi_info_read(multi_, &left)) {
    const CURLcode code = message->data.result;
    Request* request = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &request);
    HttpResponseHandler& handler = *request->handler;
    const std::string error = request->describe(code);
    take(handler);
    handler.on_end(error);
  }
}

}  // namespace minfer
