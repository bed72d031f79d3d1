#include "server/bench/http_client.h"

#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "server/http/descriptors.h"

namespace minfer {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using boost::beast::string_view;
using boost::system::error_code;
using net::ip::tcp;

/// Passes on the status and the pieces of a body as they are parsed; headers are of no use here.
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

/// The message for the end of a connection: the same for all requests with that failure.
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

/// A connection, with the state of the request that uses it.
struct ClientConnection {
  explicit ClientConnection(net::io_context& context) : socket(context) {}

  tcp::socket socket;
  std::string message;
  std::array<char, 16384> buffer;
  size_t buffered = 0;
  bool is_writing = false;
  bool has_response = false;  ///< some of one came
  bool is_aborted = false;
};
using ConnectionRef = std::shared_ptr<ClientConnection>;

}  // namespace

class HttpClient::Impl {
 public:
  explicit Impl(const HttpUrl& url) : timer_(context_) {
    raise_descriptor_limit();  // beyond it: errors that say so
    error_code error;
    endpoints_ = tcp::resolver(context_).resolve(url.host, std::to_string(url.port), error);
    if (error) fail("{}: {}", url.host, error.message());
  }

  void send(std::string message, HttpResponseHandler& handler) {
    const ConnectionRef connection = idle_connection();
    connection->message = std::move(message);
    active_[&handler] = connection;
    net::co_spawn(context_, exchange(connection, handler), [](const std::exception_ptr& thrown) {
      if (thrown) std::rethrow_exception(thrown);  // from a handler, to the caller of run_until()
    });
  }

  void abort(HttpResponseHandler& handler, const std::string& error) {
    const auto found = active_.find(&handler);
    if (found == active_.end()) return;
    found->second->is_aborted = true;
    close(*found->second);
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
  static constexpr auto kResult = net::as_tuple(net::use_awaitable);

  static void close(ClientConnection& connection) {
    error_code ignored;
    connection.socket.close(ignored);
  }

  /// An open and silent connection, else a new one.
  ConnectionRef idle_connection() {
    while (!idle_.empty()) {
      ConnectionRef connection = std::move(idle_.back());
      idle_.pop_back();
      error_code error;
      if (connection->socket.available(error) == 0 && !error) return connection;
    }
    return std::make_shared<ClientConnection>(context_);
  }

  net::awaitable<void> exchange(ConnectionRef connection, HttpResponseHandler& handler) {
    if (connection->is_aborted) co_return;
    const bool was_idle = connection->socket.is_open();
    ResponseParser parser(handler, read_ns_);
    const error_code error = co_await converse(connection, parser);
    if (connection->is_aborted) co_return;
    if (error && was_idle && !connection->has_response) {  // the server had closed it
      auto fresh = std::make_shared<ClientConnection>(context_);
      fresh->message = std::move(connection->message);
      active_[&handler] = fresh;
      co_return co_await exchange(fresh, handler);
    }
    active_.erase(&handler);
    if (!error && parser.keep_alive() && connection->buffered == 0 && !connection->is_writing) {
      idle_.push_back(connection);
    } else {
      close(*connection);
    }
    handler.on_end(error ? describe(error) : "");
  }

  /// Reads until the response is whole. Returns the error that ends it before that.
  net::awaitable<error_code> converse(ConnectionRef connection, ResponseParser& parser) {
    ClientConnection& own = *connection;
    if (!own.socket.is_open()) {
      const auto [error, endpoint] = co_await net::async_connect(own.socket, endpoints_, kResult);
      if (error || own.is_aborted) co_return error;
      error_code ignored;
      own.socket.set_option(tcp::no_delay(true), ignored);
    }
    own.has_response = false;
    own.is_writing = true;
    // The read reports an error as well, and may still find what the server said before it closed.
    net::async_write(own.socket, net::buffer(own.message),
                     [connection](const error_code&, size_t) { connection->is_writing = false; });
    while (!parser.is_done()) {
      if (own.buffered == own.buffer.size()) co_return http::error::header_limit;
      auto [error, size] = co_await own.socket.async_read_some(
          net::buffer(own.buffer.data() + own.buffered, own.buffer.size() - own.buffered), kResult);
      if (own.is_aborted) co_return error;
      read_ns_ = now_ns();
      if (error == net::error::eof && parser.got_some()) {
        error = {};
        parser.put_eof(error);
        co_return error;
      }
      if (error) co_return error;
      own.has_response = true;
      own.buffered += size;
      // Bytes that cannot be parsed yet stay at the front of the buffer.
      const size_t parsed = parser.put(net::const_buffer(own.buffer.data(), own.buffered), error);
      own.buffered -= parsed;
      std::memmove(own.buffer.data(), own.buffer.data() + parsed, own.buffered);
      if (error && error != http::error::need_more) co_return error;
    }
    co_return error_code();
  }

  net::io_context context_{BOOST_ASIO_CONCURRENCY_HINT_UNSAFE};  // one thread: no locks
  net::steady_timer timer_;
  tcp::resolver::results_type endpoints_;
  std::unordered_map<HttpResponseHandler*, ConnectionRef> active_;
  std::vector<ConnectionRef> idle_;
  int64_t read_ns_ = 0;  ///< when the latest read ended
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
