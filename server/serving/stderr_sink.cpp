#include "server/serving/stderr_sink.h"

#include <algorithm>
#include <cerrno>

#include <poll.h>
#include <unistd.h>

namespace minfer {

void StderrSink::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  write({line.data(), line.size()});
}

void StderrSink::write(std::string_view text) {
  while (!text.empty()) {
    if (!wait_until_writable()) return;
    // A pipe that is ready takes so much without waiting.
    const ssize_t count = ::write(STDERR_FILENO, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (count < 0 && errno != EINTR && errno != EAGAIN) return;
    if (count > 0) text.remove_prefix(static_cast<size_t>(count));
  }
}

bool StderrSink::wait_until_writable() const {
  constexpr int kLookAgainMs = 50;
  pollfd waiting{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  while (true) {
    const bool ending = std::chrono::steady_clock::now().time_since_epoch().count() >= end_.load();
    const int ready = ::poll(&waiting, 1, ending ? 0 : kLookAgainMs);
    if (ready > 0) return (waiting.revents & POLLOUT) != 0;
    if (ending || (ready < 0 && errno != EINTR)) return false;
  }
}

}  // namespace minfer
