#include "tests/support/server/http_driver.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

#include "server/http/http_connection.h"

namespace minfer {
namespace {

/// Appends what has arrived.
void receive(int fd, std::string& received) {
  char bytes[16 << 10];
  while (true) {
    const ssize_t count = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count <= 0) return;
    received.append(bytes, static_cast<size_t>(count));
  }
}

}  // namespace

HttpDriver::HttpDriver(HttpLimits limits, HttpHandler handler)
    : server_(loop_, HttpServerOptions{.port = 0, .limits = limits}, std::move(handler)) {}

HttpDriver::~HttpDriver() = default;

/// Runs everything that can run now. The loop ends by itself when nothing waits any more, hence restart().
void HttpDriver::run_ready() {
  loop_.context().restart();
  loop_.context().poll();
}

std::string HttpDriver::answers_to(std::string_view input, size_t piece_bytes) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) throw std::runtime_error("socketpair");
  using boost::asio::ip::tcp;
  server_.accepted(tcp::socket(loop_.context(), tcp::v4(), fds[1]));
  std::string received;
  while (!input.empty()) {
    const std::string_view piece = input.substr(0, piece_bytes > 0 ? piece_bytes : input.size());
    const ssize_t count = ::send(fds[0], piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    run_ready();
    receive(fds[0], received);
    if (count > 0) input.remove_prefix(static_cast<size_t>(count));
    if (server_.num_connections() == 0) break;
  }
  ::shutdown(fds[0], SHUT_WR);
  constexpr int kMaxTurns = 1000;
  for (int turn = 0; turn < kMaxTurns && server_.num_connections() > 0; ++turn) {
    run_ready();
    receive(fds[0], received);
  }
  run_ready();
  receive(fds[0], received);
  ::close(fds[0]);
  if (server_.num_connections() > 0) throw std::logic_error("the connection does not end");
  return received;
}

}  // namespace minfer
