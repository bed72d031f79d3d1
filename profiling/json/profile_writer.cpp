#include "profiling/json/profile_writer.h"

#include <algorithm>
#include <csignal>
#include <functional>
#include <new>
#include <utility>

#include "kernels/base/clock.h"
#include "profiling/json/lines.h"

namespace minfer {
namespace {

constexpr size_t kFlushBytes = 64u << 10;
constexpr size_t kQueuedRankSteps = 4'096;
constexpr size_t kMostLines = 1'000;  // of add_line(), while the file's other end takes none
// Records wait in the queue this long at most: waking the thread for each would cost the engine a system call a step.
constexpr std::chrono::milliseconds kWriteInterval{10};

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
      requests_(options_.queued_requests),
      rank_steps_(kQueuedRankSteps),
      summariser_(header_.ops, header_.ceilings, header_.detail),
      host_until_ns_(now_ns()),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

ProfileWriter::~ProfileWriter() {
  close();
}

void ProfileWriter::consume(const StepRecord& record) noexcept {
  if (!queue_.push(record) && in_range(record.step)) overflowed_.fetch_add(1, std::memory_order_relaxed);
}

void ProfileWriter::consume_request(const EndedRequest& request) noexcept {
  if (!requests_.push(request)) overflowed_lines_.fetch_add(1, std::memory_order_relaxed);
}

void ProfileWriter::consume_rank_step(const RankStep& step) noexcept {
  if (!rank_steps_.push(step)) overflowed_lines_.fetch_add(1, std::memory_order_relaxed);
}

void ProfileWriter::set_steps(int64_t first_step, int64_t last_step) {
  // The writer's thread looks at them when it has found a record in the queue.
  options_.first_step = first_step;
  options_.last_step = last_step;
}

void ProfileWriter::add_range(RangeTrace range) {
  const std::lock_guard lock(added_mutex_);
  added_.ranges.push_back(std::move(range));
}

void ProfileWriter::add_line(std::string line) {
  const std::lock_guard lock(added_mutex_);
  if (added_.lines.size() < kMostLines) {
    added_.lines.push_back(std::move(line));
  } else {
    ++refused_lines_;
  }
}

ProfileWriter::Stats ProfileWriter::close() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  const std::lock_guard lock(added_mutex_);
  return {
      .written = written_,
      .dropped = unwritten_ + overflowed_.load(std::memory_order_relaxed),
      .dropped_lines = unwritten_lines_ + refused_lines_ + overflowed_lines_.load(std::memory_order_relaxed),
      .beat_ceilings = summariser_.beats_ceilings(),
      .error = error_};
}

void ProfileWriter::run(const std::stop_token& stop) {
  block_sigpipe();
  stop_ = stop;
  append_header_line(buffer_, header_);
  end_other_line();
  for (;;) {
    const bool stopping = stop.stop_requested();  // asked first: what was queued before the stop is written
    drain();
    if (stopping) return write_last();
    std::unique_lock lock(wake_mutex_);
    wake_.wait_for(lock, stop, kWriteInterval, [] { return false; });
  }
}

void ProfileWriter::write_last() {
  if (options_.host != nullptr) options_.host->sample_now();
  if (options_.devices != nullptr) options_.devices->sample_now();
  write_samples();
  write_waiting_requests(true);
  flush();
}

void ProfileWriter::drain() {
  Added added;  // taken first: the steps of its ranges are in the queue by now
  {
    const std::lock_guard lock(added_mutex_);
    std::swap(added, added_);
  }
  while (const StepRecord* record = queue_.front()) {
    if (in_range(record->step)) {
      StepSummary summary = summariser_.summarise(*record);
      summary.dropped = unwritten_ + overflowed_.load(std::memory_order_relaxed);
      append_new_launches();
      append_line(buffer_, summary);
      ++buffered_steps_;
    } else {
      summariser_.observe(*record);
    }
    queue_.pop();
    if (buffer_.size() >= kFlushBytes) flush();
  }
  while (const RankStep* step = rank_steps_.front()) {
    if (in_range(step->step)) append(*step);
    rank_steps_.pop();
  }
  write_requests();
  write_samples();
  for (RangeTrace& range : added.ranges) {
    const int64_t first_step = range.first_step;
    try {
      write(std::move(range));
    } catch (const std::bad_alloc&) {
      RangeTrace lost;
      lost.first_step = first_step;
      lost.error = "too little memory for what was traced";
      write(std::move(lost));
    }
  }
  for (const std::string& line : added.lines) {
    buffer_ += line;
    end_other_line();
  }
  flush();
}

void ProfileWriter::write_requests() {
  while (const EndedRequest* request = requests_.front()) {
    if (in_range(request->steps)) waiting_requests_.push_back(*request);
    requests_.pop();
  }
  write_waiting_requests(false);
}

void ProfileWriter::write_samples() {
  const auto append_new = [&](const auto* sampler, int64_t& until_ns) {
    if (sampler == nullptr) return;
    for (const auto& sample : sampler->after(until_ns)) {
      append(sample);
      until_ns = sample.end_ns;
    }
  };
  append_new(options_.host, host_until_ns_);
  append_new(options_.devices, devices_until_ns_);
}

void ProfileWriter::write_waiting_requests(bool all) {
  const auto is_known = [](const EndedRequest& request) {
    return request.client == nullptr || request.client->is_finished();
  };
  const auto held = static_cast<size_t>(std::ranges::count_if(waiting_requests_, std::not_fn(is_known)));
  size_t too_many = held - std::min(held, options_.queued_requests);
  std::erase_if(waiting_requests_, [&](EndedRequest& request) {
    if (!is_known(request) && !all) {
      if (too_many == 0) return false;
      --too_many;
    }
    request.set_client_wait_after(now_ns());
    append(request);
    return true;
  });
}

void ProfileWriter::write(RangeTrace range) {
  append_new_launches();
  for (RangeTrace& each : by_rank(std::move(range))) {
    const RangeAnalysis analysis(std::move(each), header_.ops);
    append(analysis.line());
    analysis.for_each_step([&](const StepKernels& step) { append(step); });
    analysis.for_each_kernel([&](const KernelLine& kernel) { append(kernel); });
    if (options_.on_range && analysis.line().rank == 0) options_.on_range(analysis.line());
  }
}

void ProfileWriter::append_new_launches() {
  if (header_.launches == nullptr || header_.launches->size() == launches_written_) return;
  for (const KernelLaunch& launch : header_.launches->from(launches_written_)) {
    append_launch_line(buffer_, launches_written_++, launch);
    end_other_line();
  }
}

template <class Value>
void ProfileWriter::append(const Value& value) {
  append_line(buffer_, value);
  end_other_line();
}

void ProfileWriter::end_other_line() {
  ++buffered_lines_;
  if (buffer_.size() >= kFlushBytes) flush();
}

void ProfileWriter::flush() {
  if (error_.empty()) {
    error_ = file_.write(buffer_, stop_, options_.close_timeout).value_or("");
    if (!error_.empty() && options_.on_error) options_.on_error(error_);
  }
  (error_.empty() ? written_ : unwritten_) += buffered_steps_;
  if (!error_.empty()) unwritten_lines_ += buffered_lines_;
  buffered_steps_ = buffered_lines_ = 0;
  buffer_.clear();
}

}  // namespace minfer
