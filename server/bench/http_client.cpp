#include "server/bench/http_client.h"

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include "kernels/error.h"
#include "kernels/stamps.h"
#include "server/http/descriptors.h"

namespace minfer {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using boost::beast::string_view;
using boost::system::error_code;
using net::ip::tcp;

/// Hands the status and the pieces of a body on as they are parsed; headers are of no use here.
class ResponseParser : public http::basic_parser<false> {
 public:
  ResponseParser(HttpResponseHandler& handler, const int64_t& time_ns)
      : handler_(handler), time_ns_(time_ns) {
    eager(true);
    body_limit(boost::none);
  }

 private:
  void on_request_impl(http::verb, string_view, string_view, int, error_code&) override {}
  void on_response_impl(int status, string_view, int, error_code&) override { status_ = status; }
  void on_field_impl(http::field, string_view, string_view, error_code&) override {}
  void on_header_impl(error_code&) override { handler_.on_status(status_); }
  void on_body_init_impl(boost::optional<uint64_t> const&, error_code&) override {}
  size_t on_body_impl(string_view body, error_code&) override { return hand_on(body); }
  void on_chunk_header_impl(uint64_t, string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, string_view body, error_code&) override { return hand_on(body); }
  void on_finish_impl(error_code&) override {}

  size_t hand_on(string_view body) {
    handler_.on_body({body.data(), body.size()}, time_ns_);
    return body.size();
  }

  HttpResponseHandler& handler_;
  const int64_t& time_ns_;
  int status_ = 0;
};

/// The words for what ended a connection: the same for all requests that it happens to.
std::string describe(const error_code& error) {
  if (error == net::error::connection_refused) return "connection refused";
  if (error == net::error::eof || error == http::error::partial_message ||
      error == http::error::end_of_stream || error == net::error::connection_reset ||
      error == net::error::broken_pipe) {
    return "connection closed by the server";
  }
  if (error.category() == http::make_error_code(http::error::bad_version).category()) {
    return "no valid HTTP: " + error.message();
  }
  return error.message();
}

class ClientConnection;

/// What connections need of the client they belong to.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  virtual net::io_context& context() = 0;
  virtual const tcp::resolver::results_type& endpoints() const = 0;
  /// The response has come whole; the connection waits for the next request or is closed.
  virtual void on_response(ClientConnection& connection, HttpResponseHandler& handler, bool is_open) = 0;
  /// The connection failed and is closed. `handler` null: it was idle.
  virtual void on_failure(ClientConnection& connection, HttpResponseHandler* handler,
                          const error_code& error) = 0;
};

/// A connection and the handler of the request that it carries, if any. While it is open a read is always
/// under way, so that it notices when the server closes it, idle or not.
class ClientConnection : public std::enable_shared_from_this<ClientConnection> {
 public:
  explicit ClientConnection(ConnectionOwner& owner) : owner_(owner), socket_(owner.context()) {}

  void start(std::string message, HttpResponseHandler& handler) {
    message_ = std::move(message);
    handler_ = &handler;
    parser_.emplace(handler, read_ns_);
    has_response_ = false;
    if (!socket_.is_open()) return connect();
    is_reused_ = true;
    write();
  }

  /// Whether the failed request may be sent once more on a new connection.
  bool may_retry() const { return is_reused_ && !has_response_; }
  std::string take_message() { return std::move(message_); }

  /// Without a word to the owner.
  void close() {
    handler_ = nullptr;
    is_closed_ = true;
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  void connect() {
    net::async_connect(socket_, owner_.endpoints(),
                       [self = shared_from_this()](const error_code& error, const tcp::endpoint&) {
                         if (!self->is_closed_) self->on_connect(error);
                       });
  }

  void on_connect(const error_code& error) {
    if (error) return fail_with(error);
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    write();
    read();
  }

  void write() {
    is_writing_ = true;
    // An error shows in the read as well, which may still find what the server said before it closed.
    net::async_write(socket_, net::buffer(message_),
                     [self = shared_from_this()](const error_code&, size_t) { self->is_writing_ = false; });
  }

  void read() {
    socket_.async_read_some(net::buffer(buffer_.data() + buffered_, buffer_.size() - buffered_),
                            [self = shared_from_this()](const error_code& error, size_t size) {
                              if (!self->is_closed_) self->on_read(error, size);
                            });
  }

  void on_read(error_code error, size_t size) {
    read_ns_ = now_ns();
    if (handler_ == nullptr) return fail_with(error);  // idle: nothing was to come
    if (error == net::error::eof && parser_->got_some()) {
      error = {};
      parser_->put_eof(error);
      if (!error) return finish();
    }
    if (error) return fail_with(error);
    has_response_ = true;
    buffered_ += size;
    parse();
  }

  /// What cannot be parsed yet stays at the front of the buffer.
  void parse() {
    error_code error;
    const size_t parsed = parser_->put(net::const_buffer(buffer_.data(), buffered_), error);
    buffered_ -= parsed;
    std::memmove(buffer_.data(), buffer_.data() + parsed, buffered_);
    if (error && error != http::error::need_more) return fail_with(error);
    if (parser_->is_done()) return finish();
    if (buffered_ == buffer_.size()) return fail_with(http::error::header_limit);
    read();
  }

  void finish() {
    const bool is_reusable = parser_->keep_alive() && buffered_ == 0 && !is_writing_;
    HttpResponseHandler* handler = std::exchange(handler_, nullptr);
    is_reusable ? read() : close();
    owner_.on_response(*this, *handler, is_reusable);
  }

  void fail_with(const error_code& error) {
    HttpResponseHandler* handler = std::exchange(handler_, nullptr);
    close();
    owner_.on_failure(*this, handler, error);
  }

  ConnectionOwner& owner_;
  tcp::socket socket_;
  std::string message_;
  HttpResponseHandler* handler_ = nullptr;
  std::optional<ResponseParser> parser_;
  std::array<char, 16384> buffer_;
  size_t buffered_ = 0;
  int64_t read_ns_ = 0;  ///< when the latest read ended
  bool is_writing_ = false;
  bool is_reused_ = false;
  bool has_response_ = false;  ///< some of one came
  bool is_closed_ = false;
};

}  // namespace

class HttpClient::Impl : public ConnectionOwner {
 public:
  explicit Impl(const HttpUrl& url) : timer_(context_) {
    raise_descriptor_limit();  // beyond it: errors that say so
    error_code error;
    endpoints_ = tcp::resolver(context_).resolve(url.host, std::to_string(url.port), error);
    if (error) fail("{}: {}", url.host, error.message());
  }

  ~Impl() override {
    for (auto& [handler, connection] : active_)
      connection->close();
    for (const auto& connection : idle_)
      connection->close();
  }

  void send(std::string message, HttpResponseHandler& handler) {
    if (idle_.empty()) return send_anew(std::move(message), handler);
    std::shared_ptr<ClientConnection> connection = std::move(idle_.back());
    idle_.pop_back();
    start(std::move(connection), std::move(message), handler);
  }

  void abort(HttpResponseHandler& handler, const std::string& error) {
    const auto found = active_.find(&handler);
    if (found == active_.end()) return;
    found->second->close();
    active_.erase(found);
    handler.on_end(error);
  }

  void run_until(int64_t deadline_ns) {
    context_.restart();
    timer_.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline_ns)));
    timer_.async_wait([this](const error_code& error) {
      if (!error) context_.stop();
    });
    context_.run();
    timer_.cancel();
  }

  void stop() { context_.stop(); }

 private:
  net::io_context& context() override { return context_; }
  const tcp::resolver::results_type& endpoints() const override { return endpoints_; }

  void send_anew(std::string message, HttpResponseHandler& handler) {
    start(std::make_shared<ClientConnection>(static_cast<ConnectionOwner&>(*this)), std::move(message),
          handler);
  }

  void start(std::shared_ptr<ClientConnection> connection, std::string message,
             HttpResponseHandler& handler) {
    ClientConnection& started = *connection;
    active_[&handler] = std::move(connection);
    started.start(std::move(message), handler);
  }

  void on_response(ClientConnection& connection, HttpResponseHandler& handler, bool is_open) override {
    active_.erase(&handler);
    if (is_open) idle_.push_back(connection.shared_from_this());
    handler.on_end("");
  }

  void on_failure(ClientConnection& connection, HttpResponseHandler* handler,
                  const error_code& error) override {
    if (handler == nullptr) {
      std::erase_if(idle_, [&](const auto& idle) { return idle.get() == &connection; });
      return;
    }
    active_.erase(handler);
    if (connection.may_retry()) return send_anew(connection.take_message(), *handler);
    handler->on_end(describe(error));
  }

  net::io_context context_{BOOST_ASIO_CONCURRENCY_HINT_UNSAFE};  // one thread: no locks
  net::steady_timer timer_;
  tcp::resolver::results_type endpoints_;
  std::unordered_map<HttpResponseHandler*, std::shared_ptr<ClientConnection>> active_;
  std::vector<std::shared_ptr<ClientConnection>> idle_;
};

HttpClient::HttpClient(const HttpUrl& url) : impl_(std::make_unique<Impl>(url)) {}
HttpClient::~HttpClient() = default;

void HttpClient::send(std::string message, HttpResponseHandler& handler) {
  impl_->send(std::move(message), handler);
}

void HttpClient::abort(HttpResponseHandler& handler, const std::string& error) {
  impl_->abort(handler, error);
}

void HttpClient::run_until(int64_t deadline_ns) {
  impl_->run_until(deadline_ns);
}

void HttpClient::stop() {
  impl_->stop();
}

std::string http_request(std::string_view method, const HttpUrl& url, std::string_view target,
                         std::string_view headers, std::string_view body) {
  std::string message =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\n{}", method, url.path, target, url.authority(), headers);
  if (!body.empty()) {
    message += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  }
  message += "\r\n";
  message += body;
  return message;
}

}  // namespace minfer
