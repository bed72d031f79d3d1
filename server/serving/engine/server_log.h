#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <variant>

namespace minfer {

enum class LogLevel : uint8_t { debug, info, warning, error, off };

enum class LogFormat : uint8_t { text, json };

struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;
};

/// The server's log on standard error: one line an event, as text (name=value) or as a JSON object. A thread of its own writes the
/// lines, so that a slow terminal or a full pipe holds up nobody. If it falls thousands of lines behind, the oldest are dropped;
/// lines that standard error does not take (closed, disk full) are lost. Any thread. SIGPIPE is ignored in processes that have a log.
class ServerLog {
 public:
  ServerLog(LogFormat format, LogLevel level);
  /// Waits until everything is written, but not for long if nobody reads.
  ~ServerLog() { close(); }
  /// The same, while the log still exists. No write() during or after it.
  void close();
  ServerLog(const ServerLog&) = delete;
  ServerLog& operator=(const ServerLog&) = delete;

  void write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

 private:
  using Clock = std::chrono::steady_clock;

  void write_lines(const std::stop_token& stop);
  bool wait_until_writable() const;

  const LogFormat format_;
  const LogLevel level_;
  std::mutex mutex_;
  std::condition_variable_any has_lines_;
  std::deque<std::string> lines_;
  std::atomic<Clock::time_point> end_{
      Clock::time_point::max()};  ///< then lines that cannot be written at once are dropped
  std::jthread thread_;
};

}  // namespace minfer
