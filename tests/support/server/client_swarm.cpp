#include "tests/support/server/client_swarm.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/base/clock.h"

namespace minfer {
namespace {

using Clock = std::chrono::steady_clock;

/// A client's connection.
struct Talk {
  SwarmClient* client = nullptr;
  Clock::time_point begin = {};
  int fd = -1;
  Clock::time_point next_byte = {};
  size_t sent = 0;
  bool ended = false;
};

void end(Talk& talk) {
  if (talk.fd >= 0) ::close(talk.fd);
  talk.fd = -1;
  talk.ended = true;
}

void leave(Talk& talk) {
  if (talk.client->left) return;
  talk.client->left = true;
  if (talk.client->leave == Leave::shut_sending) {
    ::shutdown(talk.fd, SHUT_WR);
    return;  // it still reads until the server closes
  }
  if (talk.client->leave == Leave::reset) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(talk.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  end(talk);
}

void begin(Talk& talk, uint16_t port) {
  talk.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (talk.fd < 0) throw std::runtime_error("no descriptor for another client");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(talk.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno != EINPROGRESS) {
    talk.client->refused = true;
    end(talk);
  }
}

/// Ends a connection whose last call failed.
void lose(Talk& talk) {
  if (errno == EAGAIN || errno == EINTR) return;
  (errno == ECONNREFUSED ? talk.client->refused : talk.client->was_reset) = true;
  end(talk);
}

void send_some(Talk& talk) {
  const SwarmClient& client = *talk.client;
  const bool dribbles = client.byte_interval.count() > 0 && talk.sent >= client.dribbles_after;
  if (dribbles) {
    if (Clock::now() < talk.next_byte) return;
    talk.next_byte = Clock::now() + client.byte_interval;
  }
  const size_t at_once = client.byte_interval.count() > 0 ? client.dribbles_after : client.request.size();
  const size_t most = dribbles ? talk.sent + 1 : std::min(at_once, client.leaves_after_sending);
  const size_t all = std::min(client.request.size(), most);
  if (talk.sent < all) {
    const ssize_t count =
        ::send(talk.fd, client.request.data() + talk.sent, all - talk.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) return lose(talk);
    talk.sent += static_cast<size_t>(count);
  }
  if (talk.sent >= client.leaves_after_sending) leave(talk);
}

void receive_some(Talk& talk) {
  SwarmClient& client = *talk.client;
  char bytes[16 << 10];
  const ssize_t count = ::recv(talk.fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (count < 0) return lose(talk);
  if (count == 0) return end(talk);
  client.received.append(bytes, static_cast<size_t>(count));
  client.received_at_ns.push_back(now_ns());
  if (client.received.size() >= client.leaves_after_receiving) leave(talk);
}

/// Continues a talk. Returns false once it has ended.
bool go_on(Talk& talk, uint16_t port, Clock::time_point start, short events) {
  if (talk.ended) return false;
  const Clock::time_point now = Clock::now();
  if (talk.fd < 0) {
    if (now < start + talk.client->starts_after) return true;
    talk.begin = now;
    begin(talk, port);
    return !talk.ended;
  }
  const bool can_send = (events & POLLOUT) != 0 || talk.client->byte_interval.count() > 0;
  if (can_send && !talk.client->left) send_some(talk);
  if (talk.fd >= 0 && (events & (POLLIN | POLLERR | POLLHUP)) != 0) receive_some(talk);
  if (talk.fd >= 0 && now >= talk.begin + talk.client->leaves_after) leave(talk);
  return !talk.ended;
}

short wanted_events(const Talk& talk) {
  const bool sends = !talk.client->left && talk.client->byte_interval.count() == 0 &&
                     talk.sent < std::min(talk.client->request.size(), talk.client->leaves_after_sending);
  return static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN);
}

}  // namespace

void run_swarm(uint16_t port, std::vector<SwarmClient>& clients, std::chrono::milliseconds timeout) {
  constexpr int kLookAgainMs = 2;
  const Clock::time_point start = Clock::now();
  std::vector<Talk> talks;
  for (SwarmClient& client : clients)
    talks.push_back({.client = &client});
  std::vector<pollfd> waiting(talks.size());
  for (bool any = true; any && Clock::now() < start + timeout;) {
    for (size_t i = 0; i < talks.size(); ++i)
      waiting[i] = {.fd = talks[i].fd, .events = wanted_events(talks[i]), .revents = 0};
    ::poll(waiting.data(), waiting.size(), kLookAgainMs);
    any = false;
    for (size_t i = 0; i < talks.size(); ++i)
      any = go_on(talks[i], port, start, waiting[i].revents) || any;
  }
  for (Talk& talk : talks) {
    talk.client->timed_out = !talk.ended;
    end(talk);
  }
}

ReceivedResponse parse_response(const std::string& received) {
  ReceivedResponse response;
  const size_t head_end = received.find("\r\n\r\n");
  if (head_end == std::string::npos || !received.starts_with("HTTP/1.1 ")) return response;
  response.head = received.substr(0, head_end + 2);
  response.status = std::stoi(response.head.substr(9, 3));
  std::string rest = received.substr(head_end + 4);
  constexpr std::string_view kLength = "\r\ncontent-length: ";
  if (const size_t length = response.head.find(kLength); length != std::string::npos) {
    response.complete = rest.size() >= std::stoul(response.head.substr(length + kLength.size()));
    response.body = std::move(rest);
    return response;
  }
  while (true) {
    const size_t line_end = rest.find("\r\n");
    if (line_end == std::string::npos) return response;
    const size_t size = std::stoul(rest.substr(0, line_end), nullptr, 16);
    if (rest.size() < line_end + 2 + size + 2) return response;
    response.body += rest.substr(line_end + 2, size);
    rest.erase(0, line_end + 2 + size + 2);
    if (size == 0) break;
  }
  response.complete = true;
  return response;
}

StreamedText parse_events(const std::string& body) {
  constexpr std::string_view kData = "data: ";
  StreamedText streamed;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = body.find("\n\n", begin);
    if (end == std::string::npos || body.compare(begin, kData.size(), kData) != 0)
      throw std::runtime_error("not a whole event: " + body.substr(begin, 200));
    const std::string data = body.substr(begin + kData.size(), end - begin - kData.size());
    begin = end + 2;
    if (streamed.done) throw std::runtime_error("an event after [DONE]");
    if (data == "[DONE]") {
      streamed.done = true;
      continue;
    }
    const nlohmann::json event = nlohmann::json::parse(data);
    if (event.contains("error")) {
      streamed.error = event["error"]["message"];
      continue;
    }
    for (const nlohmann::json& choice : event["choices"]) {
      streamed.text += choice["text"].get<std::string>();
      if (choice["finish_reason"].is_string()) streamed.finish = choice["finish_reason"];
    }
  }
  return streamed;
}

}  // namespace minfer
