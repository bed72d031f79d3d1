#include "server/http/http_exchange.h"

#include <ctime>
#include <utility>

#include <boost/beast/http/status.hpp>
#include <fmt/chrono.h>

#include "kernels/base/clock.h"

namespace minfer {
namespace {

namespace http = boost::beast::http;

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

}  // namespace

Connection::Exchange::Exchange(Connection& connection, HttpRequest request, bool http_1_0,
                               std::unique_ptr<BodyShare> body_share)
    : connection_(&connection),
      request_(std::move(request)),
      body_share_(std::move(body_share)),
      http_1_0_(http_1_0),
      begin_ns_(now_ns()) {}

void Connection::Exchange::drop_body() {
  std::string().swap(request_.body);
  body_share_->give_back();
}

void Connection::Exchange::respond(HttpResponse response) {
  if (connection_ == nullptr) return;
  std::string text = head_of(response);
  text += fmt::format("content-length: {}\r\n\r\n", response.body.size());
  if (!is_head()) text += response.body;
  send(text);
  finish();
}

void Connection::Exchange::begin_stream(HttpResponse head) {
  if (connection_ == nullptr) return;
  if (http_1_0_) connection_->keep_alive_ = false;  // the answer ends with the connection
  std::string text = head_of(head);
  text += http_1_0_ ? "\r\n" : "transfer-encoding: chunked\r\n\r\n";
  send(text);
}

void Connection::Exchange::write(std::string_view text) {
  if (connection_ == nullptr || text.empty() || is_head()) return;
  http_1_0_ ? send(text) : send(fmt::format("{:x}\r\n{}\r\n", text.size(), text));
}

void Connection::Exchange::end() {
  if (connection_ == nullptr) return;
  if (!http_1_0_ && !is_head()) send("0\r\n\r\n");
  finish();
}

void Connection::Exchange::abort() {
  if (connection_ != nullptr) connection_->close();
}

bool Connection::Exchange::has_room() const {
  return connection_ == nullptr ||
         connection_->num_unsent_bytes() < connection_->server_.options_.limits.write_buffer_bytes;
}

void Connection::Exchange::on_taken() {
  if (!on_room_ || connection_ == nullptr) return;
  if (connection_->num_unsent_bytes() > connection_->server_.options_.limits.write_buffer_bytes / 2) return;
  std::exchange(on_room_, nullptr)();
}

/// Before the answer, sends an interim response (RFC 9110, section 15.2); within the answer, a leading zero of the next chunk's size.
void Connection::Exchange::ask_client() {
  if (http_1_0_ || (is_head() && status_ != 0) || std::exchange(has_asked_, true)) return;
  connection_->send(status_ == 0 ? "HTTP/1.1 100 Continue\r\n\r\n" : "0");
}

void Connection::Exchange::detach(bool all_sent) {
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

std::string Connection::Exchange::head_of(const HttpResponse& response) {
  status_ = response.status;
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nserver: minfer\r\ndate: {}\r\nx-request-id: {}\r\n",
                                 response.status, reason_phrase(response.status), http_date(), request_.id);
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

void Connection::Exchange::send(std::string_view bytes) {
  sent_bytes_ += bytes.size();
  connection_->send(bytes);
}

void Connection::Exchange::finish() {
  ended_ = true;
  connection_->finish_answer();
}

}  // namespace minfer
