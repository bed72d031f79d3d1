#include "kernels/comm/lifelines.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <random>
#include <sstream>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace minfer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kConnectTime{3};
constexpr size_t kMostBytesSaid = 4096;

/// A process that connects sends this token, to show that the launcher's messages told it the address.
std::string random_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

int remaining_ms(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(0, left));
}

bool is_ready(int socket, short events, Clock::time_point end) {
  pollfd entry{.fd = socket, .events = events, .revents = 0};
  return ::poll(&entry, 1, remaining_ms(end)) > 0;
}

/// A lost host sends nothing: keep-alive ends the connection after some 4 s of silence.
void keep_alive(int socket) {
  const auto set = [socket](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

/// IPv4 addresses of this host at which others may reach it, those of real networks first.
std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const bool loopback : {false, true}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
      if ((entry->ifa_flags & IFF_UP) == 0 || ((entry->ifa_flags & IFF_LOOPBACK) != 0) != loopback) continue;
      std::array<char, INET_ADDRSTRLEN> text{};
      const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
      addresses.emplace_back(text.data());
    }
  }
  ::freeifaddrs(list);
  return addresses;
}

/// A socket that is connecting to `address`, or connected; -1: it cannot be reached.
int begin_connecting(const std::string& address, uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  if (::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return -1;
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return -1;
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 || errno == EINPROGRESS)
    return socket;
  ::close(socket);
  return -1;
}

bool send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

/// Receives exactly `bytes` bytes; empty: they do not come in time.
std::string receive_exactly(int socket, size_t bytes, Clock::time_point end) {
  std::string text(bytes, '\0');
  size_t received = 0;
  while (received < bytes) {
    if (!is_ready(socket, POLLIN, end)) return {};
    const ssize_t count = ::recv(socket, text.data() + received, bytes - received, 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return {};
    if (count > 0) received += static_cast<size_t>(count);
  }
  return text;
}

constexpr size_t kGreetingBytes = 32 + 8;  // token and rank

}  // namespace

Lifelines::Lifelines(Rank rank, std::shared_ptr<RankFailure> failure,
                     std::function<std::string(int32_t)> name_of)
    : rank_(rank),
      failure_(std::move(failure)),
      name_of_(std::move(name_of)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Lifelines::~Lifelines() {
  stop_watching();
  for (const Peer& peer : peers_)
    ::close(peer.socket);
  if (listener_ >= 0) ::close(listener_);
  if (wake_ >= 0) ::close(wake_);
}

std::string Lifelines::listen() {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || ::bind(listener_, any, sizeof address) != 0 || ::listen(listener_, rank_.count) != 0 ||
      ::getsockname(listener_, any, &size) != 0)
    return {};
  token_ = random_token();
  std::string where = fmt::format("{} {}", token_, ntohs(address.sin_port));
  for (const std::string& own : own_addresses())
    where += " " + own;
  return where;
}

bool Lifelines::connect(const std::string& where) {
  std::istringstream words(where);
  uint16_t port = 0;
  std::string address;
  if (!(words >> token_ >> port)) return false;
  std::vector<pollfd> attempts;
  while (words >> address) {
    const int socket = begin_connecting(address, port);
    if (socket >= 0) attempts.push_back({.fd = socket, .events = POLLOUT, .revents = 0});
  }
  const std::string greeting = fmt::format("{}{:08}", token_, rank_.index);
  const auto end = Clock::now() + kConnectTime;
  int connected = -1;
  // Another host may have one of these addresses too: only the first rank answers with the token.
  while (connected < 0 && !attempts.empty() &&
         ::poll(attempts.data(), attempts.size(), remaining_ms(end)) > 0) {
    for (pollfd& attempt : attempts) {
      if (attempt.revents == 0 || connected >= 0) continue;
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(attempt.fd, SOL_SOCKET, SO_ERROR, &error, &size);
      const auto answer_end = std::min(end, Clock::now() + std::chrono::seconds(1));
      if (error == 0 && send_all(attempt.fd, greeting) &&
          receive_exactly(attempt.fd, token_.size(), answer_end) == token_) {
        connected = attempt.fd;
      } else {
        ::close(attempt.fd);
      }
      attempt.fd = -1;  // poll() leaves it out
    }
    std::erase_if(attempts, [](const pollfd& attempt) { return attempt.fd < 0; });
  }
  for (const pollfd& attempt : attempts)
    ::close(attempt.fd);
  if (connected >= 0) add(0, connected);
  return connected >= 0;
}

int32_t Lifelines::accept(int32_t count) {
  const auto end = Clock::now() + kConnectTime;
  int32_t taken = 0;
  while (listener_ >= 0 && taken < count && is_ready(listener_, POLLIN, end)) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) continue;
    const std::string greeting =
        receive_exactly(socket, kGreetingBytes, std::min(end, Clock::now() + std::chrono::seconds(1)));
    const bool is_known = greeting.starts_with(token_) && !greeting.empty();
    const int rank = is_known ? std::atoi(greeting.c_str() + token_.size()) : 0;
    if (rank < 1 || rank >= rank_.count || !send_all(socket, token_)) {
      ::close(socket);
      continue;
    }
    add(rank, socket);
    ++taken;
  }
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));
  return taken;
}

void Lifelines::add(int32_t rank, int socket) {
  keep_alive(socket);
  const std::lock_guard lock(mutex_);
  peers_.push_back({.rank = rank, .socket = socket, .said = {}});
}

void Lifelines::watch(std::function<void()> on_failure) {
  thread_ = std::jthread(
      [this, on_failure = std::move(on_failure)](const std::stop_token& stop) { run(stop, on_failure); });
}

void Lifelines::stop_watching() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  if (!thread_.joinable()) return;
  thread_.request_stop();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
  thread_.join();
}

void Lifelines::run(const std::stop_token& stop, const std::function<void()>& on_failure) {
  std::vector<pollfd> sockets{{.fd = wake_, .events = POLLIN, .revents = 0}};
  for (const Peer& peer : peers_)
    sockets.push_back({.fd = peer.socket, .events = POLLIN, .revents = 0});
  while (!stop.stop_requested() && !failure_->is_set()) {
    ::poll(sockets.data(), sockets.size(), -1);
    if (!stop.stop_requested()) look();
  }
  if (failure_->is_set()) on_failure();
}

void Lifelines::look() {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  for (Peer& peer : peers_)
    look(peer);
}

void Lifelines::look(Peer& peer) {
  std::array<char, 512> bytes{};
  while (!failure_->is_set()) {
    const ssize_t count = ::recv(peer.socket, bytes.data(), bytes.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return report(peer);
    if (peer.said.size() < kMostBytesSaid) peer.said.append(bytes.data(), static_cast<size_t>(count));
  }
}

void Lifelines::report(const Peer& peer) {
  if (peer.said.empty()) {
    failure_->set(name_of_(peer.rank) + " has gone: its process or its host has ended");
  } else if (peer.rank == 0 || peer.said.starts_with(name_of_(peer.rank))) {
    failure_->set(peer.said);  // it names the rank
  } else {
    failure_->set(fmt::format("{}: {}", name_of_(peer.rank), peer.said));
  }
}

void Lifelines::tell(const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (const Peer& peer : peers_) {
    send_all(peer.socket, std::string_view(why).substr(0, kMostBytesSaid));
    ::shutdown(peer.socket, SHUT_WR);
  }
}

}  // namespace minfer
