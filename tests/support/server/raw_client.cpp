#include "tests/support/server/raw_client.h"

#include <cerrno>
#include <stdexcept>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace minfer {

namespace {

/// Called after a call has failed.
void throw_if_time_is_over() {
  if (errno == EAGAIN || errno == EWOULDBLOCK)
    throw std::runtime_error("the peer neither sends nor takes anything");
}

}  // namespace

RawClient::RawClient(uint16_t port, std::chrono::milliseconds patience)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const timeval limit{.tv_sec = patience.count() / 1000, .tv_usec = patience.count() % 1000 * 1000};
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(fd_);
    throw std::runtime_error(fmt::format("cannot connect to port {}", port));
  }
}

RawClient::~RawClient() {
  close();
}

RawClient::RawClient(RawClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0) throw_if_time_is_over();
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

void RawClient::shut_sending() {
  ::shutdown(fd_, SHUT_WR);
}

void RawClient::reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

void RawClient::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void RawClient::set_receive_buffer(int bytes) {
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

std::string RawClient::receive() {
  if (!buffer_.empty()) return std::exchange(buffer_, {});
  char bytes[16 << 10];
  const ssize_t count = ::recv(fd_, bytes, sizeof bytes, 0);
  if (count < 0) throw_if_time_is_over();
  return count > 0 ? std::string(bytes, static_cast<size_t>(count)) : std::string();
}

bool RawClient::is_readable() const {
  pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
  return !buffer_.empty() || ::poll(&waiting, 1, 0) > 0;
}

std::string RawClient::receive_until(std::string_view text) {
  std::string received = std::exchange(buffer_, {});
  size_t found;
  while ((found = received.find(text)) == std::string::npos) {
    const std::string more = receive();
    if (more.empty()) return received;
    received += more;
  }
  buffer_ = received.substr(found + text.size());
  received.resize(found + text.size());
  return received;
}

std::string RawClient::receive_all() {
  std::string received;
  for (std::string more = receive(); !more.empty(); more = receive())
    received += more;
  return received;
}

std::string RawClient::Response::header(std::string_view lower_case_name) const {
  const std::string line = fmt::format("\r\n{}: ", lower_case_name);
  const size_t begin = head.find(line);
  if (begin == std::string::npos) return {};
  const size_t value = begin + line.size();
  return head.substr(value, head.find("\r\n", value) - value);
}

RawClient::Response RawClient::response(bool head_only) {
  Response response;
  response.head = receive_until("\r\n\r\n");
  if (!response.head.starts_with("HTTP/1.1 ")) return response;
  response.status = std::stoi(response.head.substr(9, 3));
  if (response.status == 100) return this->response(head_only);
  if (head_only) return response;
  if (response.header("transfer-encoding") == "chunked") {
    response.body = chunked_body();
    return response;
  }
  const std::string length = response.header("content-length");
  if (length.empty()) {
    response.body = receive_all();
    return response;
  }
  const size_t size = std::stoul(length);
  while (response.body.size() < size) {
    const std::string more = receive();
    if (more.empty()) break;
    response.body += more;
  }
  if (response.body.size() > size) {
    buffer_ = response.body.substr(size);
    response.body.resize(size);
  }
  return response;
}

std::string RawClient::chunked_body() {
  std::string body;
  while (true) {
    const std::string line = receive_until("\r\n");
    if (line.size() < 3) throw std::runtime_error("the chunked body ended before its last chunk");
    const size_t size = std::stoul(line, nullptr, 16);
    std::string chunk;
    while (chunk.size() < size + 2) {
      const std::string more = receive();
      if (more.empty()) throw std::runtime_error("the chunked body ended inside a chunk");
      chunk += more;
    }
    buffer_ = chunk.substr(size + 2) + buffer_;
    chunk.resize(size);
    if (size == 0) return body;
    body += chunk;
  }
}

std::string RawClient::request_text(std::string_view method, std::string_view path, std::string_view body,
                                    std::string_view more_headers) {
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n{}", method, path, more_headers);
  if (!body.empty()) {
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  }
  return fmt::format("{}\r\n{}", text, body);
}

RawClient::Response RawClient::request(std::string_view method, std::string_view path, std::string_view body,
                                       std::string_view more_headers) {
  if (!send(request_text(method, path, body, more_headers))) return {};
  return response(method == "HEAD");
}

}  // namespace minfer
