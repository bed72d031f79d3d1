#pragma once

#include <atomic>
#include <chrono>
#include <string_view>

#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>

namespace minfer {

/// Writes log lines to standard error, however slow it is, but lets itself be ended: a pipe that nobody reads
/// must not keep the process from ending. Lines that standard error does not take (closed, disk full) are
/// lost. The log's thread; end_at() from any. SIGPIPE is ignored in processes that have one.
class StderrSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  /// From `time` on, what cannot be written at once is dropped.
  void end_at(std::chrono::steady_clock::time_point time) { end_ = time.time_since_epoch().count(); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  void write(std::string_view text);
  bool wait_until_writable() const;

  std::atomic<std::chrono::steady_clock::rep> end_{
      std::chrono::steady_clock::time_point::max().time_since_epoch().count()};
};

}  // namespace minfer
