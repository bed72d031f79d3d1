#pragma once

#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/optional/optional.hpp>
#include <boost/system/errc.hpp>
#include <fmt/chrono.h>

#include "kernels/base/clock.h"
#include "server/http/http_message.h"
#include "server/http/http_server.h"
#include "server/http/memory_reserve.h"

namespace minfer {

/// One request body's share of the budget, given back at the end. I/O thread.
class BodyShare {
 public:
  explicit BodyShare(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  ~BodyShare() { give_back(); }

  void give_back() { budget_->used -= std::exchange(bytes_, 0); }

  /// Returns false if the budget does not allow it. A small body is always allowed,
  /// so that clients that fill the budget with large bodies lock out nobody else.
  bool grow(size_t bytes) {
    constexpr size_t kSmallBytes = 32u << 10;
    if (bytes_ + bytes > kSmallBytes && budget_->used + bytes > budget_->limit) return false;
    budget_->used += bytes;
    bytes_ += bytes;
    return true;
  }

 private:
  const std::shared_ptr<BodyBudget> budget_;
  size_t bytes_ = 0;
};

/// A body for Boost.Beast's parser. It takes memory as bytes arrive, not as Content-Length promises them, and no more than the budget has.
struct CountedBody {
  struct value_type {
    std::string text;
    std::unique_ptr<BodyShare> share;
  };

  class reader {
   public:
    template <class Header>
    reader(Header&, value_type& body) : body_(body) {}

    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }

    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      const size_t size = boost::asio::buffer_size(buffers);
      error = {};
      if (!body_.share->grow(size)) {
        error = make_error_code(boost::system::errc::not_enough_memory);
        return 0;
      }
      try {
        const ClientSizedAllocations client_sized;
        for (const boost::asio::const_buffer bytes : boost::beast::buffers_range_ref(buffers))
          body_.text.append(static_cast<const char*>(bytes.data()), bytes.size());
      } catch (const std::bad_alloc&) {
        std::string().swap(body_.text);  // frees memory for the answer
        error = make_error_code(boost::system::errc::not_enough_memory);
        return 0;
      }
      return size;
    }

    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

/// One client's connection: reads a request, hands it over, sends the answer, and so on until either
/// side closes. I/O thread. The server owns it until close(); then the operations that still have to
/// end own it. The server's sweep checks deadlines, so that setting a deadline costs nothing.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  /// `is_spare`: there are HttpLimits::max_connections other connections.
  Connection(HttpServer& server, boost::asio::ip::tcp::socket socket, bool is_spare);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  void check_deadline(Clock::time_point now);
  /// Closes unless a request has begun, or is probably on its way.
  void close_if_idle();
  /// True if closing it would lose nothing that is known.
  bool can_yield(Clock::time_point now) const;
  void close();
  /// True if it has a request whose answer is not sent yet.
  bool is_answering() const { return state_ == State::answering || state_ == State::flushing; }

 private:
  class Exchange;
  struct Reader;

  enum class State : uint8_t {
    idle,       ///< waits for a request's first byte
    reading,    ///< has some of a request
    answering,  ///< the handler has it
    flushing,   ///< the answer is complete but not sent
    lingering,  ///< all is sent; reads what the client still sends, so that closing does not destroy the
                ///< answer
    closed,
  };

  template <class Handler>
  auto guarded(Handler handler);

  void wait_for_request();
  void watch_client();
  void look_after_client();
  void read_header();
  void on_header(const boost::system::error_code& error);
  void read_body();
  void hand_over();
  void answer_early(HttpResponse response);
  void answer_error(int status, const std::string& message);
  std::optional<HttpFault> read_head();
  HttpRequest take_head();
  void make_exchange(HttpRequest request, bool http_1_0, std::unique_ptr<BodyShare> body_share);
  bool fail_reading(const boost::system::error_code& error);

  void send(std::string_view bytes);
  void write_some();
  void on_written(const boost::system::error_code& error, size_t count);
  void on_all_sent();
  void linger();
  void discard();
  /// Leaves the list of yielding connections that it is in and joins another; null: none.
  void move_to(HttpServer::Yielding* list);
  void set_deadline(std::chrono::milliseconds timeout) { deadline_ = Clock::now() + timeout; }
  size_t num_unsent_bytes() const { return pending_.size() + writing_.size() - written_; }

  HttpServer& server_;  ///< not to be used once it is closed
  boost::asio::ip::tcp::socket socket_;
  std::string remote_;
  State state_ = State::idle;
  HttpServer::Yielding* list_ = nullptr;    ///< that it is in; null: none
  HttpServer::Yielding::iterator place_{};  ///< in that list
  Clock::time_point deadline_ = Clock::time_point::max();
  std::unique_ptr<Reader> reader_;  ///< while reading, and between requests if bytes of the next are in it
  std::shared_ptr<Exchange> exchange_;
  const bool is_spare_;
  bool timed_out_ = false;        ///< while reading; the read is being cancelled
  bool watching_ = false;         ///< a wait for readability is under way
  bool watching_errors_ = false;  ///< also waits for the end of a client that has closed its sending half
  bool keep_alive_ = true;
  bool has_served_ = false;  ///< it has served at least one request
  bool flush_posted_ = false;
  bool write_in_progress_ = false;
  std::vector<char> pending_;  ///< to be sent after writing_
  std::vector<char> writing_;
  size_t written_ = 0;        ///< bytes of writing_ that are sent
  size_t bytes_to_take_ = 0;  ///< bytes that the client must take until deadline_; 0: none
};

/// A request that a connection has handed over, and the writer of its answer. It
/// outlives the connection if the handler still holds it; `connection_` is then null.
class Connection::Exchange final : public HttpExchange {
 public:
  Exchange(Connection& connection, HttpRequest request, bool http_1_0, std::unique_ptr<BodyShare> body_share)
      : connection_(&connection),
        request_(std::move(request)),
        body_share_(std::move(body_share)),
        http_1_0_(http_1_0),
        begin_ns_(now_ns()) {}

  HttpRequest& request() override { return request_; }
  void drop_body() override {
    std::string().swap(request_.body);
    body_share_->give_back();
  }
  bool hold(size_t bytes) override { return body_share_->grow(bytes); }
  bool is_closed() const override { return connection_ == nullptr && !ended_; }
  void on_closed(std::function<void()> callback) override { on_closed_ = std::move(callback); }
  void on_over(std::function<void()> callback) override { on_over_ = std::move(callback); }
  void respond(HttpResponse response) override {
    if (connection_ == nullptr) return;
    std::string text = head_of(response);
    text += fmt::format("content-length: {}\r\n\r\n", response.body.size());
    if (!is_head()) text += response.body;
    send(text);
    finish();
  }
  void begin_stream(HttpResponse head) override {
    if (connection_ == nullptr) return;
    if (http_1_0_) connection_->keep_alive_ = false;  // the answer ends with the connection
    std::string text = head_of(head);
    text += http_1_0_ ? "\r\n" : "transfer-encoding: chunked\r\n\r\n";
    send(text);
  }
  void write(std::string_view text) override {
    if (connection_ == nullptr || text.empty() || is_head()) return;
    http_1_0_ ? send(text) : send(fmt::format("{:x}\r\n{}\r\n", text.size(), text));
  }
  void end() override {
    if (connection_ == nullptr) return;
    if (!http_1_0_ && !is_head()) send("0\r\n\r\n");
    finish();
  }
  void abort() override {
    if (connection_ != nullptr) connection_->close();
  }
  bool has_room() const override {
    return connection_ == nullptr ||
           connection_->num_unsent_bytes() < connection_->server_.options_.limits.write_buffer_bytes;
  }
  void on_room(std::function<void()> callback) override { on_room_ = std::move(callback); }

  /// Called when the client has taken some of the sent bytes.
  void on_taken() {
    if (!on_room_ || connection_ == nullptr) return;
    if (connection_->num_unsent_bytes() > connection_->server_.options_.limits.write_buffer_bytes / 2) return;
    std::exchange(on_room_, nullptr)();
  }
  /// Sends a message that a waiting client skips; the kernel of a client that has gone answers with a reset. Before the answer it is an
  /// interim response (RFC 9110, section 15.2); within the answer, a leading zero of the next chunk's size.
  void ask_client() {
    if (http_1_0_ || (is_head() && status_ != 0) || std::exchange(has_asked_, true)) return;
    connection_->send(status_ == 0 ? "HTTP/1.1 100 Continue\r\n\r\n" : "0");
  }
  /// Called when the connection goes, or has taken the whole answer.
  void detach(bool all_sent) {
    Connection* const connection = std::exchange(connection_, nullptr);
    if (connection == nullptr) return;
    on_room_ = nullptr;
    if (const auto& on_finished = connection->server_.options_.on_finished) {
      on_finished(request_, {.status = status_,
                             .sent_bytes = sent_bytes_,
                             .duration_ns = now_ns() - begin_ns_,
                             .aborted = !all_sent});
    }
    if (const std::function<void()> on_over = std::exchange(on_over_, nullptr)) on_over();
    const std::function<void()> callback = std::exchange(on_closed_, nullptr);
    if (!ended_ && callback) callback();
  }

 private:
  /// For the Date header; the text is made once a second.
  static const std::string& http_date() {
    thread_local std::time_t second = 0;
    thread_local std::string text;
    const std::time_t now = std::time(nullptr);
    if (now != second) {
      second = now;
      text = fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}", fmt::gmtime(now));
    }
    return text;
  }
  bool is_head() const { return request_.method == "HEAD"; }
  std::string head_of(const HttpResponse& response) {
    status_ = response.status;
    const auto reason = boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(status_));
    std::string head = fmt::format("HTTP/1.1 {} {}\r\nserver: minfer\r\ndate: {}\r\nx-request-id: {}\r\n",
                                   status_, std::string_view(reason), http_date(), request_.id);
    if (!response.content_type.empty()) head += fmt::format("content-type: {}\r\n", response.content_type);
    for (const HttpHeaders* headers : {&response.headers, &this->headers()}) {
      for (const auto& [name, value] : *headers)
        head += fmt::format("{}: {}\r\n", name, value);
    }
    connection_->keep_alive_ = connection_->keep_alive_ && connection_->server_.keeps_alive_;
    if (!connection_->keep_alive_) {
      head += "connection: close\r\n";
    } else if (http_1_0_) {
      head += "connection: keep-alive\r\n";
    }
    return head;
  }
  void send(std::string_view bytes) {
    sent_bytes_ += bytes.size();
    connection_->send(bytes);
  }
  void finish() {
    ended_ = true;
    connection_->state_ = State::flushing;
    connection_->send({});  // so that the end is noticed even if everything has been sent
  }

  Connection* connection_;
  HttpRequest request_;
  const std::unique_ptr<BodyShare> body_share_;
  const bool http_1_0_;
  const int64_t begin_ns_;
  std::function<void()> on_closed_;
  std::function<void()> on_room_;
  std::function<void()> on_over_;
  bool ended_ = false;
  bool has_asked_ = false;
  int status_ = 0;
  uint64_t sent_bytes_ = 0;
};

}  // namespace minfer
