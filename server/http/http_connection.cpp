#include "server/http/http_connection.h"

#include <algorithm>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace minfer {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

/// Buffers that grew larger than this are given back when they are empty.
constexpr size_t kKeptBufferBytes = 16u << 10;
constexpr size_t kMaxRequestIdBytes = 128;
/// The time that a new connection has to send its request's first byte when the server stops.
constexpr std::chrono::milliseconds kFirstRequestTime{1'000};

/// True for printable ASCII without quotes, which can stand in headers, JSON and log lines as it is.
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

void shrink(std::vector<char>& buffer) {
  buffer.clear();
  if (buffer.capacity() > kKeptBufferBytes) std::vector<char>().swap(buffer);
}

/// Where it is large, it grows by steps, not twofold: so a slow reader costs little more than the bytes that it has not read.
void append(std::vector<char>& buffer, std::string_view bytes) {
  constexpr size_t kStepBytes = 16u << 10;
  const size_t size = buffer.size() + bytes.size();
  if (size > buffer.capacity() && size > kStepBytes) buffer.reserve((size / kStepBytes + 1) * kStepBytes);
  buffer.insert(buffer.end(), bytes.begin(), bytes.end());
}

}  // namespace

/// The state in which a request is parsed. Made for one request and gone with it, so that idle connections are cheap.
struct Connection::Reader {
  boost::beast::flat_buffer buffer;  ///< holds a line of chunks or all trailers until their end has come
  std::optional<http::request_parser<CountedBody>> parser;
  HttpRequest head;  ///< without what only trailers say
  std::function<void(uint64_t, boost::beast::string_view, error_code&)> on_chunk;  ///< of the parser

  explicit Reader(size_t most_bytes) : buffer(most_bytes) {}

  void begin(const HttpLimits& limits, const std::shared_ptr<BodyBudget>& budget) {
    parser.emplace();
    parser->header_limit(static_cast<uint32_t>(limits.header_bytes));
    parser->body_limit(limits.body_bytes);
    parser->get().body().share = std::make_unique<BodyShare>(budget);
    head = {};
    on_chunk = [this, most_bytes = limits.header_bytes, extension_bytes = size_t{0}](
                   uint64_t, boost::beast::string_view extensions, error_code& error) mutable {
      extension_bytes += extensions.size();
      if (extension_bytes > most_bytes) {
        error = http::error::header_limit;
      } else if (!parser->get().body().share->grow(extensions.size())) {
        error = make_error_code(boost::system::errc::not_enough_memory);
      }
    };
    parser->on_chunk_header(on_chunk);
  }
};

Connection::Connection(HttpServer& server, tcp::socket socket, bool is_spare)
    : server_(server), socket_(std::move(socket)), is_spare_(is_spare) {}

/// A completion handler that keeps the connection alive, and closes it if an
/// exception ends it: one client's failure ends nobody else's connection.
template <class Handler>
auto Connection::guarded(Handler handler) {
  return [self = shared_from_this(), handler](const auto&... results) {
    try {
      handler(*self, results...);
    } catch (const std::exception&) {
      self->close();
    }
  };
}

void Connection::move_to(HttpServer::Yielding* list) {
  if (list_ != nullptr) std::exchange(list_, nullptr)->erase(place_);
  if (list == nullptr) return;
  place_ = list->insert(list->end(), this);
  list_ = list;
}

void Connection::start() {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(
      asio::socket_base::send_buffer_size(static_cast<int>(server_.options_.limits.socket_buffer_bytes)),
      ignored);
  remote_ = address_of(socket_);
  wait_for_request();
  if (!server_.listening_) close_if_idle();
}

void Connection::wait_for_request() {
  state_ = State::idle;
  if (reader_ && reader_->buffer.size() > 0) return read_header();
  move_to(is_spare_ ? &server_.ending_ : &server_.idle_);
  reader_.reset();
  shrink(pending_);
  shrink(writing_);
  written_ = 0;
  set_deadline(server_.options_.limits.idle_timeout);
  watch_client();
}

void Connection::watch_client() {
  if (watching_) return;
  watching_ = true;
  socket_.async_wait(tcp::socket::wait_read, guarded([](Connection& self, const error_code& error) {
                       self.watching_ = false;
                       if (error) return;
                       // There is something to read, or the client has closed its sending half.
                       if (self.state_ == State::idle) return self.read_header();
                       if (self.state_ == State::answering) self.look_after_client();
                     }));
}

/// Closes if the client of a request that is being answered has gone. A client that has closed only its sending half waits
/// for its answer. One that has closed its connection looks the same until something is sent to it: then its kernel says so.
void Connection::look_after_client() {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      info.tcpi_state == TCP_CLOSE)
    return close();
  if (info.tcpi_state == TCP_ESTABLISHED) {
    // The next request may have begun: it waits in the kernel until this one is
    // answered, and hides the client's leaving. From now on the sweep checks for that.
    error_code error;
    if (socket_.available(error) == 0) watch_client();
    return;
  }
  exchange_->ask_client();
  if (std::exchange(watching_errors_, true)) return;
  socket_.async_wait(tcp::socket::wait_error, guarded([](Connection& self, const error_code& error) {
                       if (!error && self.state_ == State::answering) self.look_after_client();
                     }));
}

void Connection::read_header() {
  state_ = State::reading;
  if (!is_spare_) move_to(nullptr);
  set_deadline(server_.options_.limits.header_timeout);
  if (!reader_) reader_ = std::make_unique<Reader>(server_.options_.limits.header_bytes);
  reader_->begin(server_.options_.limits, server_.bodies_);
  http::async_read_header(
      socket_, reader_->buffer, *reader_->parser,
      guarded([](Connection& self, const error_code& error, size_t) { self.on_header(error); }));
}

void Connection::on_header(const error_code& error) {
  if (state_ != State::reading || fail_reading(error)) return;
  set_deadline(server_.options_.limits.body_timeout);
  const HttpServerOptions& options = server_.options_;
  const auto& message = reader_->parser->get();
  if (const auto fault = read_head()) return answer_error(fault->first, fault->second);
  if (is_spare_ && !(options.is_vital && options.is_vital(reader_->head)))
    return answer_error(
        503, fmt::format("the server has {} connections, its limit", options.limits.max_connections));
  if (options.refusal && !reader_->parser->is_done()) {
    if (auto refusal = options.refusal(reader_->head)) return answer_early(std::move(*refusal));
  }
  if (lower_case(std::string_view(message[http::field::expect])) != "100-continue") return read_body();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(kContinue),
                    guarded([](Connection& self, const error_code& write_error, size_t) {
                      if (self.state_ != State::reading) return;
                      write_error ? self.close() : self.read_body();
                    }));
}

void Connection::read_body() {
  http::async_read(socket_, reader_->buffer, *reader_->parser,
                   guarded([](Connection& self, const error_code& error, size_t) {
                     if (self.state_ == State::reading && !self.fail_reading(error)) self.hand_over();
                   }));
}

/// Answers a faulty request, if its client is still there. Returns false if nothing is wrong.
bool Connection::fail_reading(const error_code& error) {
  if (timed_out_) {
    answer_error(408, "the request did not arrive in time");
    return true;
  }
  if (!error) return false;
  const HttpLimits& limits = server_.options_.limits;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    answer_error(431, fmt::format("headers, trailers or extensions exceed {} bytes", limits.header_bytes));
  } else if (error == http::error::body_limit) {
    answer_error(413, fmt::format("the body exceeds {} bytes", limits.body_bytes));
  } else if (error == boost::system::errc::not_enough_memory) {
    answer_error(503, "the server has no room for the body now; try again later");
  } else if (error == http::error::end_of_stream || error == http::error::partial_message ||
             error.category() != make_error_code(http::error::end_of_stream).category()) {
    close();  // the client went
  } else {
    answer_error(400, fmt::format("this is not HTTP: {}", error.message()));
  }
  return true;
}

void Connection::hand_over() {
  HttpRequest request = take_head();
  auto message = reader_->parser->release();
  request.body = std::move(message.body().text);
  if (reader_->buffer.size() == 0) reader_.reset();
  make_exchange(std::move(request), message.version() < 11, std::move(message.body().share));
  state_ = State::answering;
  has_served_ = true;
  deadline_ = Clock::time_point::max();
  watch_client();
  server_.handler_(exchange_);
}

/// Makes the exchange. It is destroyed here, on the I/O thread, whichever thread drops the last reference.
void Connection::make_exchange(HttpRequest request, bool http_1_0, std::unique_ptr<BodyShare> body_share) {
  move_to(nullptr);
  const auto destroy = [&context = server_.loop_.context()](Exchange* exchange) {
    asio::dispatch(context, [owned = std::unique_ptr<Exchange>(exchange)] {});
  };
  exchange_ = std::shared_ptr<Exchange>(
      new Exchange(*this, std::move(request), http_1_0, std::move(body_share)), destroy);
}

/// Called when all headers have come and none of the body: the parser adds trailers to the headers.
std::optional<HttpFault> Connection::read_head() {
  const auto& message = reader_->parser->get();
  HttpRequest& head = reader_->head;
  head.method = std::string(message.method_string());
  for (const auto& field : message) {
    const auto name = field.name_string();
    head.headers.emplace_back(lower_case({name.data(), name.size()}), std::string(field.value()));
  }
  keep_alive_ = message.keep_alive() && !is_spare_;
  return take_target(head, message.target(), message.version() < 11);
}

/// The request without its body, as far as it has been read.
HttpRequest Connection::take_head() {
  HttpRequest request = std::move(reader_->head);
  request.remote = remote_;
  const std::string_view id = request.header("x-request-id");
  request.id =
      is_decent_id(id) ? std::string(id) : fmt::format("{:016x}-{:x}", server_.id_key_, ++server_.num_ids_);
  return request;
}

/// Answers while there is more of the request to read; nobody reads the rest.
void Connection::answer_early(HttpResponse response) {
  keep_alive_ = false;
  make_exchange(take_head(), false, std::make_unique<BodyShare>(server_.bodies_));
  state_ = State::answering;
  exchange_->respond(std::move(response));
}

void Connection::answer_error(int status, const std::string& message) {
  const auto& error_body = server_.options_.error_body;
  HttpResponse response{.status = status, .body = error_body ? error_body(status, message) : message};
  if (status == 503) response.headers = {{"retry-after", "1"}};
  answer_early(std::move(response));
}

/// Sends the gathered bytes when the handlers that are due now have run:
/// pieces of one answer that are made together leave in one packet.
void Connection::send(std::string_view bytes) {
  append(pending_, bytes);
  if (write_in_progress_ || flush_posted_) return;
  flush_posted_ = true;
  asio::post(socket_.get_executor(), guarded([](Connection& self) {
               self.flush_posted_ = false;
               if (!self.write_in_progress_) self.write_some();
             }));
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
  if (bytes_to_take_ == 0) {
    bytes_to_take_ = server_.options_.limits.least_taken_bytes();
    set_deadline(server_.options_.limits.write_timeout);
  }
  socket_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                           guarded([](Connection& self, const error_code& error, size_t count) {
                             self.on_written(error, count);
                           }));
}

void Connection::on_written(const error_code& error, size_t count) {
  write_in_progress_ = false;
  if (state_ == State::closed) return;
  if (error) return close();
  written_ += count;
  bytes_to_take_ -= std::min(bytes_to_take_, count);
  if (const std::shared_ptr<Exchange> exchange = exchange_) exchange->on_taken();
  if (num_unsent_bytes() > 0) return write_some();
  on_all_sent();
}

void Connection::on_all_sent() {
  if (state_ == State::closed) return;
  bytes_to_take_ = 0;
  if (state_ == State::answering) deadline_ = Clock::time_point::max();
  if (state_ != State::flushing) return;
  exchange_->detach(true);
  exchange_.reset();
  keep_alive_&& server_.keeps_alive_ ? wait_for_request() : linger();
}

void Connection::linger() {
  state_ = State::lingering;
  set_deadline(server_.options_.limits.linger_timeout);
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  reader_ = std::make_unique<Reader>(kKeptBufferBytes);
  move_to(&server_.ending_);
  discard();
}

void Connection::discard() {
  reader_->buffer.clear();
  socket_.async_read_some(reader_->buffer.prepare(kKeptBufferBytes),
                          guarded([](Connection& self, const error_code& error, size_t) {
                            if (self.state_ == State::closed) return;
                            error ? self.close() : self.discard();
                          }));
}

void Connection::check_deadline(Clock::time_point now) {
  if (state_ == State::answering && !watching_) look_after_client();
  if (now < deadline_) return;
  if (state_ != State::reading || timed_out_) return close();
  timed_out_ = true;  // the answer goes out when the read has ended
  set_deadline(server_.options_.limits.linger_timeout);
  error_code ignored;
  socket_.cancel(ignored);
}

bool Connection::can_yield(Clock::time_point now) const {
  if (state_ != State::idle) return true;
  error_code error;
  if (socket_.available(error) > 0 && !error) return false;  // a request has just come
  return has_served_ || is_spare_ ||
         deadline_ <= now + server_.options_.limits.idle_timeout - kFirstRequestTime;
}

void Connection::close_if_idle() {
  if (state_ == State::idle) can_yield(Clock::now()) ? close() : set_deadline(kFirstRequestTime);
}

void Connection::close() {
  if (state_ == State::closed) return;
  const auto self = shared_from_this();
  const bool all_sent = num_unsent_bytes() == 0 && state_ == State::flushing;
  state_ = State::closed;
  move_to(nullptr);
  error_code ignored;
  socket_.close(ignored);
  server_.connections_.erase(self);
  if (exchange_) exchange_->detach(all_sent);
  exchange_.reset();
}

}  // namespace minfer
