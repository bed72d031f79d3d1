#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <variant>

namespace spdlog {
class logger;
}

namespace minfer {

enum class LogLevel : uint8_t { debug, info, warning, error, off };
class StderrSink;

enum class LogFormat : uint8_t { text, json };

struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;
};

/// The server's log on standard error: one line an event, as text (name=value) or as a JSON object. A
/// thread of its own writes the lines, so that a slow terminal or a full pipe holds up nobody. If it falls
/// thousands of lines behind, the oldest are dropped; lines that cannot be written are lost. Any thread.
class ServerLog {
 public:
  ServerLog(LogFormat format, LogLevel level);
  /// Waits until everything is written, but not for long if nobody reads.
  ~ServerLog();
  /// The same, while the log still exists. No write() during or after it.
  void close();
  ServerLog(const ServerLog&) = delete;
  ServerLog& operator=(const ServerLog&) = delete;

  void write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

 private:
  LogFormat format_;
  LogLevel level_;
  std::shared_ptr<StderrSink> sink_;
  std::shared_ptr<void> lines_;  ///< queue and thread; goes after the logger
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace minfer
