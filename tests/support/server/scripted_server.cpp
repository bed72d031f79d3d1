#include "tests/support/server/scripted_server.h"

#include <chrono>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/base/error.h"

namespace minfer::test {
namespace {

/// Binds the socket to a free port of 127.0.0.1.
uint16_t bind_to_free_port(int socket) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(socket, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail("no port of 127.0.0.1 is free");
  }
  return ntohs(address.sin_port);
}

}  // namespace

bool ServedRequest::read() {
  std::string bytes;
  char buffer[4096];
  size_t head_end = std::string::npos, size = 0;
  while (head_end == std::string::npos || bytes.size() < head_end + 4 + size) {
    const ssize_t got = recv(socket_, buffer, sizeof buffer, 0);
    if (got <= 0) return false;
    bytes.append(buffer, static_cast<size_t>(got));
    if (head_end != std::string::npos) continue;
    head_end = bytes.find("\r\n\r\n");
    if (head_end == std::string::npos) continue;
    head = bytes.substr(0, head_end + 2);
    const std::string length = header("Content-Length");
    size = length.empty() ? 0 : std::stoul(length);
  }
  body = bytes.substr(head_end + 4);
  const size_t space = head.find(' ');
  target = head.substr(space + 1, head.find(' ', space + 1) - space - 1);
  return true;
}

void ServedRequest::wait_until_closed() const {
  char buffer[4096];
  while (recv(socket_, buffer, sizeof buffer, 0) > 0) {
  }
}

void ServedRequest::write(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the client has gone
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void ServedRequest::respond(int status, std::string_view body_text) const {
  write(
      fmt::format("HTTP/1.1 {} Status\r\nContent-Length: {}\r\n\r\n{}", status, body_text.size(), body_text));
}

void ServedRequest::begin_stream() const {
  write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
}

void ServedRequest::write_chunk(std::string_view bytes) const {
  write(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
}

std::string ServedRequest::header(const std::string& name) const {
  const std::string label = "\r\n" + name + ": ";
  const size_t at = head.find(label);
  if (at == std::string::npos) return {};
  const size_t begin = at + label.size();
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

ScriptedServer::ScriptedServer(Script script)
    : script_(std::move(script)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
  port_ = bind_to_free_port(listener_);
  if (listen(listener_, 512) != 0) fail("scripted server: cannot listen on 127.0.0.1");
  acceptor_ = std::thread([this] { accept_all(); });
}

ScriptedServer::~ScriptedServer() {
  shutdown(listener_, SHUT_RDWR);  // ends accept()
  acceptor_.join();
  close(listener_);
  for (int socket : sockets_)
    shutdown(socket, SHUT_RDWR);
  for (std::thread& connection : connections_)
    connection.join();
  for (int socket : sockets_)
    close(socket);
}

std::string ScriptedServer::url() const {
  return fmt::format("http://127.0.0.1:{}", port_);
}

void ScriptedServer::accept_all() {
  for (;;) {
    const int socket = accept(listener_, nullptr, nullptr);
    if (socket < 0) return;
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ++num_connections_;
    sockets_.push_back(socket);
    connections_.emplace_back([this, socket] { serve(socket); });
  }
}

void ScriptedServer::serve(int socket) {
  for (;;) {
    ServedRequest request(socket);
    if (!request.read() || !script_(request)) break;
  }
  shutdown(socket, SHUT_RDWR);  // the destructor closes it, so that its number is not reused before
}

BoundPort::BoundPort()
    : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), number_(bind_to_free_port(socket_)) {}

BoundPort::~BoundPort() {
  close(socket_);
}

std::string text_event(std::string_view text) {
  return fmt::format("data: {{\"id\":\"cmpl-1\",\"choices\":[{{\"index\":0,\"text\":\"{}\"}}]}}\n\n", text);
}

std::string usage_event(int prompt_tokens, int completion_tokens) {
  return fmt::format(
      "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{}}}}}\n\n",
      prompt_tokens, completion_tokens);
}

void stream_completion(ServedRequest& request, int num_tokens, int gap_ms) {
  request.begin_stream();
  for (int i = 0; i < num_tokens; ++i) {
    if (i > 0 && gap_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(gap_ms));
    request.write_chunk(text_event(fmt::format(" t{}", i)));
  }
  request.write_chunk(usage_event(11, num_tokens));
  request.write_chunk("data: [DONE]\n\n");
  request.end_stream();
}

}  // namespace minfer::test
