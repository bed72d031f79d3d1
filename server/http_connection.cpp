#include "server/http_connection.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/chrono.h>
#include <sys/socket.h>

#include "profiling/recorder.h"
#include "server/event_loop_impl.h"

namespace minfer {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

/// Buffers that grew larger are given back when they are empty.
constexpr size_t kKeptBufferBytes = 16u << 10;
constexpr std::chrono::milliseconds kSweepInterval{250};
constexpr std::chrono::milliseconds kLingerTime{2'000};
constexpr size_t kMaxRequestIdBytes = 128;

std::string_view reason_phrase(int status) {
  const auto phrase = http::obsolete_reason(static_cast<http::status>(status));
  return {phrase.data(), phrase.size()};
}

/// For the Date header; the text is made once a second.
const std::string& http_date() {
  thread_local std::time_t second = 0;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now != second) {
    second = now;
    text = fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}", fmt::gmtime(now));
  }
  return text;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

/// Printable ASCII without quotes, so that it can stand in headers, JSON and log lines as it is.
bool is_decent_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::ranges::all_of(id, [](char c) { return c > ' ' && c < '\x7f' && c != '"' && c != '\\'; });
}

std::string address_of(const tcp::socket& socket) {
  error_code error;
  const tcp::endpoint endpoint = socket.remote_endpoint(error);
  if (error) return "unknown";
  return fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

void shrink(std::string& buffer) {
  buffer.clear();
  if (buffer.capacity() > kKeptBufferBytes) std::string().swap(buffer);
}

}  // namespace

/// Where a request is parsed. Made for a request and gone with it, so that idle connections are cheap.
struct Connection::Reader {
  boost::beast::flat_buffer buffer;
  std::optional<http::request_parser<http::string_body>> parser;

  void begin(const HttpLimits& limits) {
    parser.emplace();
    parser->header_limit(static_cast<uint32_t>(limits.header_bytes));
    parser->body_limit(limits.body_bytes);
  }
};

/// An exchange outlives its connection where the handler still holds it: `connection_` is null then.
class Connection::Exchange final : public HttpExchange {
 public:
  Exchange(Connection& connection, HttpRequest request, bool http_1_0)
      : connection_(&connection), request_(std::move(request)), http_1_0_(http_1_0), begin_ns_(now_ns()) {}

  HttpRequest& request() override { return request_; }
  bool is_closed() const override { return connection_ == nullptr && !ended_; }
  void on_closed(std::function<void()> callback) override { on_closed_ = std::move(callback); }

  void respond(HttpResponse response) override {
    if (connection_ == nullptr) return;
    std::string text = head_of(response);
    text += fmt::format("content-length: {}\r\n\r\n", response.body.size());
    if (request_.method != "HEAD") text += response.body;
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
    if (connection_ == nullptr || text.empty()) return;
    if (connection_->num_unsent_bytes() + text.size() > limits().write_buffer_bytes) {
      connection_->close();  // which tells whoever listens through on_closed()
      return;
    }
    http_1_0_ ? send(text) : send(fmt::format("{:x}\r\n{}\r\n", text.size(), text));
  }

  void end() override {
    if (connection_ == nullptr) return;
    if (!http_1_0_) send("0\r\n\r\n");
    finish();
  }

  /// The connection is going, or has taken the whole answer.
  void detach() {
    Connection* const connection = std::exchange(connection_, nullptr);
    if (connection == nullptr) return;
    if (const auto& on_finished = connection->server_->options.on_finished) {
      on_finished(request_, {.status = status_,
                             .sent_bytes = sent_bytes_,
                             .duration_ns = now_ns() - begin_ns_,
                             .aborted = !ended_});
    }
    const std::function<void()> callback = std::exchange(on_closed_, nullptr);
    if (!ended_ && callback) callback();
  }

 private:
  const HttpLimits& limits() const { return connection_->server_->options.limits; }

  std::string head_of(const HttpResponse& response) {
    status_ = response.status;
    std::string head = fmt::format("HTTP/1.1 {} {}\r\nserver: minfer\r\ndate: {}\r\nx-request-id: {}\r\n",
                                   response.status, reason_phrase(response.status), http_date(), request_.id);
    if (!response.content_type.empty()) head += fmt::format("content-type: {}\r\n", response.content_type);
    for (const auto& [name, value] : response.headers)
      head += fmt::format("{}: {}\r\n", name, value);
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
    connection_->finish_answer(connection_->keep_alive_);
  }

  Connection* connection_;
  HttpRequest request_;
  const bool http_1_0_;
  const int64_t begin_ns_;
  std::function<void()> on_closed_;
  bool ended_ = false;
  int status_ = 0;
  uint64_t sent_bytes_ = 0;
};

Connection::Connection(std::shared_ptr<HttpServer::Impl> server, tcp::socket socket)
    : server_(std::move(server)), socket_(std::move(socket)) {}

Connection::~Connection() {
  auto& connections = server_->connections;
  if (slot + 1 != connections.size()) {
    connections[slot] = connections.back();
    if (const auto moved = connections[slot].lock()) moved->slot = slot;
  }
  connections.pop_back();
}

void Connection::start() {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(
      asio::socket_base::send_buffer_size(static_cast<int>(server_->options.limits.socket_buffer_bytes)),
      ignored);
  remote_ = address_of(socket_);
  wait_for_request();
}

void Connection::refuse() {
  answer_error(
      503, fmt::format("the server has {} connections, its limit", server_->options.limits.max_connections));
}

void Connection::wait_for_request() {
  state_ = State::idle;
  if (reader_ && reader_->buffer.size() > 0) return read_header();
  reader_.reset();
  shrink(pending_);
  shrink(writing_);
  written_ = 0;
  set_deadline(server_->options.limits.idle_timeout);
  watch_client();
}

void Connection::watch_client() {
  if (watching_) return;
  watching_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const error_code& error) {
    self->watching_ = false;
    if (!error) self->on_readable();
  });
}

/// There is something to read, or the client has closed its sending half.
void Connection::on_readable() {
  if (state_ == State::idle) return read_header();
  if (state_ != State::answering) return;
  char byte;
  const ssize_t count = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return close();
  if (count < 0) watch_client();
  // Else the next request has begun: it waits in the kernel until this one is answered.
}

void Connection::read_header() {
  state_ = State::reading;
  set_deadline(server_->options.limits.header_timeout);
  if (!reader_) reader_ = std::make_unique<Reader>();
  reader_->begin(server_->options.limits);
  http::async_read_header(
      socket_, reader_->buffer, *reader_->parser,
      [self = shared_from_this()](const error_code& error, size_t) { self->on_header(error); });
}

void Connection::on_header(const error_code& error) {
  if (state_ != State::reading || fail_reading(error)) return;
  set_deadline(server_->options.limits.body_timeout);
  const auto& message = reader_->parser->get();
  if (lower_case(std::string_view(message[http::field::expect])) != "100-continue") return read_body();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(kContinue),
                    [self = shared_from_this()](const error_code& write_error, size_t) {
                      if (self->state_ != State::reading) return;
                      write_error ? self->close() : self->read_body();
                    });
}

void Connection::read_body() {
  http::async_read(socket_, reader_->buffer, *reader_->parser,
                   [self = shared_from_this()](const error_code& error, size_t) { self->on_body(error); });
}

void Connection::on_body(const error_code& error) {
  if (state_ != State::reading || fail_reading(error)) return;
  hand_over();
}

/// Answers what is wrong with a request, where there is somebody to answer. False: nothing is wrong.
bool Connection::fail_reading(const error_code& error) {
  if (timed_out_) {
    answer_error(408, "the request did not arrive in time");
    return true;
  }
  if (!error) return false;
  const HttpLimits& limits = server_->options.limits;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    answer_error(431, fmt::format("the headers exceed {} bytes", limits.header_bytes));
  } else if (error == http::error::body_limit) {
    answer_error(413, fmt::format("the body exceeds {} bytes", limits.body_bytes));
  } else if (error == http::error::end_of_stream || error == http::error::partial_message ||
             error.category() != make_error_code(http::error::end_of_stream).category()) {
    close();  // the client went
  } else {
    answer_error(400, fmt::format("this is not HTTP: {}", error.message()));
  }
  return true;
}

void Connection::hand_over() {
  auto message = reader_->parser->release();
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string_view target = message.target();
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
  for (const auto& field : message) {
    const auto name = field.name_string();
    request.headers.emplace_back(lower_case({name.data(), name.size()}), std::string(field.value()));
  }
  request.body = std::move(message.body());
  request.remote = remote_;
  const std::string_view id = request.header("x-request-id");
  request.id = is_decent_id(id) ? std::string(id) : server_->draw_request_id();

  keep_alive_ = message.keep_alive() && server_->keeps_alive;
  if (reader_->buffer.size() == 0) reader_.reset();
  exchange_ = std::make_shared<Exchange>(*this, std::move(request), message.version() < 11);
  state_ = State::answering;
  deadline_ = Clock::time_point::max();
  watch_client();
  server_->handler(exchange_);
}

void Connection::answer_error(int status, const std::string& message) {
  HttpRequest request;
  request.id = server_->draw_request_id();
  request.remote = remote_;
  keep_alive_ = false;
  exchange_ = std::make_shared<Exchange>(*this, std::move(request), false);
  state_ = State::answering;
  const auto& error_body = server_->options.error_body;
  exchange_->respond({.status = status, .body = error_body ? error_body(status, message) : message});
}

/// Sends what has been gathered when the handlers that are due now have run: pieces of one answer that are
/// made together leave in one packet.
void Connection::send(std::string_view bytes) {
  pending_ += bytes;
  if (write_in_progress_ || flush_posted_) return;
  flush_posted_ = true;
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->flush_posted_ = false;
    if (!self->write_in_progress_) self->write_some();
  });
}

void Connection::write_some() {
  if (state_ == State::closed) return;
  if (written_ == writing_.size()) {
    writing_.clear();
    writing_.swap(pending_);
    written_ = 0;
  }
  if (writing_.empty()) return on_all_sent();
  write_in_progress_ = true;
  set_deadline(server_->options.limits.write_timeout);
  socket_.async_write_some(
      asio::buffer(writing_.data() + written_, writing_.size() - written_),
      [self = shared_from_this()](const error_code& error, size_t count) { self->on_written(error, count); });
}

void Connection::on_written(const error_code& error, size_t count) {
  write_in_progress_ = false;
  if (state_ == State::closed) return;
  if (error) return close();
  written_ += count;
  if (num_unsent_bytes() > 0) return write_some();
  on_all_sent();
}

void Connection::on_all_sent() {
  if (state_ == State::answering) deadline_ = Clock::time_point::max();
  if (state_ != State::flushing) return;
  exchange_->detach();
  exchange_.reset();
  keep_alive_ ? wait_for_request() : linger();
}

void Connection::finish_answer(bool keep_alive) {
  keep_alive_ = keep_alive;
  state_ = State::flushing;
  set_deadline(server_->options.limits.write_timeout);
  send({});  // so that the end is noticed even if everything has been sent
}

void Connection::linger() {
  state_ = State::lingering;
  set_deadline(kLingerTime);
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  reader_ = std::make_unique<Reader>();
  discard();
}

void Connection::discard() {
  reader_->buffer.clear();
  socket_.async_read_some(reader_->buffer.prepare(kKeptBufferBytes),
                          [self = shared_from_this()](const error_code& error, size_t) {
                            if (self->state_ == State::closed) return;
                            error ? self->close() : self->discard();
                          });
}

void Connection::check_deadline(Clock::time_point now) {
  if (now < deadline_) return;
  if (state_ != State::reading || timed_out_) return close();
  timed_out_ = true;  // the answer goes out when the read has ended
  set_deadline(kLingerTime);
  error_code ignored;
  socket_.cancel(ignored);
}

void Connection::close_if_idle() {
  if (state_ == State::idle) close();
}

void Connection::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  error_code ignored;
  socket_.close(ignored);
  if (exchange_) exchange_->detach();
  exchange_.reset();
}

void HttpServer::Impl::accepted(tcp::socket socket) {
  const auto connection = std::make_shared<Connection>(shared_from_this(), std::move(socket));
  connection->slot = connections.size();
  connections.push_back(connection);
  connections.size() > options.limits.max_connections ? connection->refuse() : connection->start();
}

void HttpServer::Impl::sweep() {
  const Connection::Clock::time_point now = Connection::Clock::now();
  for (size_t i = connections.size(); i-- > 0;) {
    if (i >= connections.size()) continue;  // closing one may have let go of others
    if (const auto connection = connections[i].lock()) connection->check_deadline(now);
  }
  loop.post_after(kSweepInterval, [self = shared_from_this()] {
    if (!self->stopped) self->sweep();
  });
}

}  // namespace minfer
