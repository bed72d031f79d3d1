#include "profiling/json/profile_writer.h"

#include <csignal>
#include <exception>
#include <utility>

#include "profiling/json/json_writer.h"

namespace minfer {
namespace {

constexpr size_t kFlushBytes = 64u << 10;
// Records wait in the queue this long at most: waking the thread for each would cost the engine a system call
// a step.
constexpr std::chrono::milliseconds kPollInterval{10};

// A write to a closed pipe then fails with EPIPE in this thread instead of ending the process.
void block_sigpipe() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

ProfileWriter::ProfileWriter(const std::filesystem::path& path, ProfileHeader header, WriterOptions options)
    : options_(std::move(options)),
      header_(std::move(header)),
      file_(path),
      queue_(options_.queue_bytes, header_.ops.size()),
      summariser_(header_.ops, header_.ceilings, header_.detail),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

ProfileWriter::~ProfileWriter() {
  close();
}

void ProfileWriter::consume(const StepRecord& record) noexcept {
  bool queued = false;
  try {
    queued = queue_.push(record);
  } catch (const std::exception&) {  // no memory for more request ids than ever before
  }
  if (!queued && in_range(record.step)) overflowed_.fetch_add(1, std::memory_order_relaxed);
}

ProfileWriter::Stats ProfileWriter::close() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  return {written_, unwritten_ + overflowed_.load(std::memory_order_relaxed), error_};
}

void ProfileWriter::run(const std::stop_token& stop) {
  block_sigpipe();
  append_header_line(buffer_, header_);
  for (;;) {
    const bool stopping =
        stop.stop_requested();  // asked before draining: what was queued before the stop is written
    drain(stop);
    if (stopping) return;
    std::unique_lock lock(wake_mutex_);
    wake_.wait_for(lock, stop, kPollInterval, [] { return false; });
  }
}

void ProfileWriter::drain(const std::stop_token& stop) {
  while (const StepRecord* record = queue_.front()) {
    if (in_range(record->step)) {
      StepSummary summary = summariser_.summarise(*record);
      summary.dropped = unwritten_ + overflowed_.load(std::memory_order_relaxed);
      append_step_line(buffer_, summary);
      ++buffered_steps_;
    } else {
      summariser_.observe(*record);
    }
    queue_.pop();
    if (buffer_.size() >= kFlushBytes) flush(stop);
  }
  flush(stop);
}

void ProfileWriter::flush(const std::stop_token& stop) {
  if (error_.empty()) {
    error_ = file_.write(buffer_, stop, options_.close_timeout).value_or("");
    if (!error_.empty() && options_.on_error) options_.on_error(error_);
  }
  (error_.empty() ? written_ : unwritten_) += buffered_steps_;
  buffered_steps_ = 0;
  buffer_.clear();
}

}  // namespace minfer
