#include "server/serving/engine/server_log.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <fmt/chrono.h>
#include <poll.h>
#include <unistd.h>

#include "models/gguf/printable.h"
#include "profiling/json/json_text.h"

namespace minfer {
namespace {

constexpr size_t kQueuedLines = 8192;
/// The time in which the last lines must be written.
constexpr std::chrono::milliseconds kLastLines{500};

std::string_view name(LogLevel level) {
  constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};
  return kNames[static_cast<size_t>(level)];
}

std::string timestamp() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)),
                     ms % 1000);
}

/// The text as it is, or in quotes if it would not be one word.
std::string word(std::string_view text) {
  const bool plain = !text.empty() && text.find_first_of(" \"=\t\r\n\\") == std::string_view::npos;
  return plain ? printable(text) : fmt::format("\"{}\"", printable(text));
}

std::string text_line(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  std::string line = fmt::format("{} {} {}", timestamp(), name(level), event);
  for (const LogField& field : fields) {
    line += fmt::format(" {}=", field.name);
    if (const auto* text = std::get_if<std::string_view>(&field.value)) {
      line += word(*text);
    } else if (const auto* integer = std::get_if<int64_t>(&field.value)) {
      line += fmt::format("{}", *integer);
    } else {
      line += fmt::format("{:.3f}", std::get<double>(field.value));
    }
  }
  return line;
}

std::string json_line(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  std::string line;
  JsonText json(line);
  json.open('{').field("time", timestamp()).field("level", name(level)).field("event", event);
  for (const LogField& field : fields) {
    json.key(field.name);
    std::visit([&](const auto& value) { json.value(value); }, field.value);
  }
  json.close('}');
  return line;
}

}  // namespace

ServerLog::ServerLog(LogFormat format, LogLevel level)
    : format_(format), level_(level), thread_([this](const std::stop_token& stop) { write_lines(stop); }) {}

void ServerLog::close() {
  end_ = Clock::now() + kLastLines;
  thread_ = {};  // joins
}

void ServerLog::write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level < level_) return;
  std::string line =
      (format_ == LogFormat::json ? json_line(level, event, fields) : text_line(level, event, fields)) + '\n';
  {
    const std::lock_guard lock(mutex_);
    if (lines_.size() == kQueuedLines) lines_.pop_front();
    lines_.push_back(std::move(line));
  }
  has_lines_.notify_one();
}

/// The thread: writes lines until it is to stop and there are none.
void ServerLog::write_lines(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (has_lines_.wait(lock, stop, [this] { return !lines_.empty(); })) {
    const std::string line = std::move(lines_.front());
    lines_.pop_front();
    lock.unlock();
    for (std::string_view rest = line; !rest.empty() && wait_until_writable();) {
      // A pipe that is ready takes so much without waiting.
      const ssize_t count = ::write(STDERR_FILENO, rest.data(), std::min<size_t>(rest.size(), PIPE_BUF));
      if (count < 0 && errno != EINTR && errno != EAGAIN) break;
      if (count > 0) rest.remove_prefix(static_cast<size_t>(count));
    }
    lock.lock();
  }
}

bool ServerLog::wait_until_writable() const {
  constexpr int kLookAgainMs = 50;
  pollfd waiting{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  while (true) {
    const bool ending = Clock::now() >= end_.load();
    const int ready = ::poll(&waiting, 1, ending ? 0 : kLookAgainMs);
    if (ready > 0) return (waiting.revents & POLLOUT) != 0;
    if (ending || (ready < 0 && errno != EINTR)) return false;
  }
}

}  // namespace minfer
