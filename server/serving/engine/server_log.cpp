#include "server/serving/engine/server_log.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>

#include <fmt/chrono.h>
#include <poll.h>
#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include "models/gguf/printable.h"
#include "profiling/json/json_text.h"

namespace minfer {

/// Writes log lines to standard error, however slow it is, but can be ended: a pipe that nobody reads
/// must not keep the process from ending. Lines that standard error does not take (closed, disk full)
/// are lost. The log's thread; end_at() from any. SIGPIPE is ignored in processes that have a log.
class StderrSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  /// From `time` on, drops lines that cannot be written at once.
  void end_at(std::chrono::steady_clock::time_point time) { end_ = time.time_since_epoch().count(); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    write({line.data(), line.size()});
  }

  void flush_() override {}

 private:
  void write(std::string_view text) {
    while (!text.empty()) {
      if (!wait_until_writable()) return;
      // A pipe that is ready takes so much without waiting.
      const ssize_t count = ::write(STDERR_FILENO, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
      if (count < 0 && errno != EINTR && errno != EAGAIN) return;
      if (count > 0) text.remove_prefix(static_cast<size_t>(count));
    }
  }

  bool wait_until_writable() const {
    constexpr int kLookAgainMs = 50;
    pollfd waiting{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    while (true) {
      const bool ending = std::chrono::steady_clock::now().time_since_epoch().count() >= end_.load();
      const int ready = ::poll(&waiting, 1, ending ? 0 : kLookAgainMs);
      if (ready > 0) return (waiting.revents & POLLOUT) != 0;
      if (ending || (ready < 0 && errno != EINTR)) return false;
    }
  }

  std::atomic<std::chrono::steady_clock::rep> end_{
      std::chrono::steady_clock::time_point::max().time_since_epoch().count()};
};

namespace {

constexpr size_t kQueuedLines = 8192;
/// The time in which the last lines must be written.
constexpr std::chrono::milliseconds kLastLines{500};

std::string_view name(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
    case LogLevel::off:
      break;
  }
  return "off";
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
    : format_(format), level_(level), sink_(std::make_shared<StderrSink>()) {
  // A queue and a thread of its own, which end with the log.
  auto lines = std::make_shared<spdlog::details::thread_pool>(kQueuedLines, 1);
  logger_ = std::make_shared<spdlog::async_logger>("minfer", sink_, lines,
                                                   spdlog::async_overflow_policy::overrun_oldest);
  lines_ = std::move(lines);
  logger_->set_pattern("%v");
}

ServerLog::~ServerLog() {
  close();
}

void ServerLog::close() {
  sink_->end_at(std::chrono::steady_clock::now() + kLastLines);
  logger_.reset();
  lines_.reset();
}

void ServerLog::write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level < level_) return;
  logger_->info(format_ == LogFormat::json ? json_line(level, event, fields)
                                           : text_line(level, event, fields));
}

}  // namespace minfer
