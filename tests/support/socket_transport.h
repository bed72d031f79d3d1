#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "kernels/comm/process_transport.h"

namespace minfer::test {

/// Messages between two processes over a socket: the work of MPI, without MPI. Owns the socket.
class SocketTransport final : public ProcessTransport {
 public:
  SocketTransport(Rank rank, int socket) : rank_(rank), socket_(socket) {}
  ~SocketTransport() override { ::close(socket_); }
  SocketTransport(const SocketTransport&) = delete;
  SocketTransport& operator=(const SocketTransport&) = delete;

  Rank rank() const override { return rank_; }
  int32_t begin_send(int32_t /*to*/, int32_t tag, const void* bytes, size_t count) override {
    const Header header{.tag = tag, .bytes = count};
    outgoing_.append(reinterpret_cast<const char*>(&header), sizeof header);
    outgoing_.append(static_cast<const char*>(bytes), count);
    move();
    return add({.tag = tag, .is_done = true});
  }
  int32_t begin_receive(int32_t /*from*/, int32_t tag, void* bytes, size_t count) override {
    return add({.tag = tag, .bytes = bytes, .count = count});
  }
  Progress progress(int32_t transfer) override {
    move();
    Open& open = open_[static_cast<size_t>(transfer)];
    if (open.is_done) return Progress::done;
    std::deque<std::string>& box = boxes_[open.tag];
    if (box.empty()) return Progress::waiting;
    const std::string message = std::move(box.front());
    box.pop_front();
    if (message.size() != open.count) return Progress::failed;
    if (open.count > 0) std::memcpy(open.bytes, message.data(), open.count);
    open.is_done = true;
    return Progress::done;
  }
  int64_t size_of_next(int32_t /*from*/, int32_t tag) override {
    move();
    const std::deque<std::string>& box = boxes_[tag];
    return box.empty() ? -1 : static_cast<int64_t>(box.front().size());
  }
  void finish() override {
    while (!outgoing_.empty() && !is_over_)
      move();
  }
  std::string error() const override { return "a message of another size"; }

 private:
  struct Header {
    int32_t tag = 0;
    size_t bytes = 0;
  };
  struct Open {
    int32_t tag = 0;
    void* bytes = nullptr;
    size_t count = 0;
    bool is_done = false;
  };

  int32_t add(Open open) {
    open_.push_back(open);
    return static_cast<int32_t>(open_.size()) - 1;
  }

  /// Moves everything that needs no wait. The other end may be gone: a transport does not report that.
  void move() {
    while (!outgoing_.empty()) {
      const ssize_t sent = ::send(socket_, outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent <= 0) break;
      outgoing_.erase(0, static_cast<size_t>(sent));
    }
    char bytes[65536];
    for (;;) {
      const ssize_t count = ::recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
      is_over_ = is_over_ || count == 0;
      if (count <= 0) break;
      incoming_.append(bytes, static_cast<size_t>(count));
    }
    Header header;
    while (incoming_.size() >= sizeof header) {
      std::memcpy(&header, incoming_.data(), sizeof header);
      if (incoming_.size() < sizeof header + header.bytes) break;
      boxes_[header.tag].push_back(incoming_.substr(sizeof header, header.bytes));
      incoming_.erase(0, sizeof header + header.bytes);
    }
  }

  Rank rank_;
  int socket_;
  bool is_over_ = false;
  std::string outgoing_, incoming_;
  std::map<int32_t, std::deque<std::string>> boxes_;
  std::deque<Open> open_;
};

}  // namespace minfer::test
