#include "profiling/counters/counter_collector.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "kernels/stamps.h"

namespace minfer {
namespace {

constexpr std::chrono::milliseconds kWakeInterval{1};
/// How long a window waits for the record of a step that began in it: no longer than steps take.
constexpr std::chrono::milliseconds kLastStep{2'000};
/// The extra length of a device's window for each other device: it stays open while the others open or close, which takes 1 and 2 ms.
constexpr int64_t kOtherDeviceNs = 3'000'000;

/// The engine runs beside the threads that decode.
int32_t quarter_of_the_cores() {
  return std::clamp(static_cast<int32_t>(std::thread::hardware_concurrency() / 4), 1, 4);
}

}  // namespace

CounterCollector::CounterCollector(std::span<const RankCounters> ranks, const CollectorOptions& options,
                                   OnWindow on_window)
    : options_(options), on_window_(std::move(on_window)) {
  for (const RankCounters& rank : ranks)
    readers_.push_back(std::make_unique<RankReader>(rank, options_.queue_bytes));
  if (prepare()) thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

CounterCollector::~CounterCollector() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  for (const auto& reader : readers_) {
    if (reader->sampler != nullptr) reader->sampler->close();
  }
}

/// Switches the counters on. False: of no rank.
bool CounterCollector::prepare() {
  const int64_t window_ns = std::chrono::nanoseconds(options_.window).count();
  const CounterOptions counters{
      .interval_ns = options_.interval_ns,
      .window_ns = window_ns + window_ns / 4 + (std::ssize(readers_) - 1) * kOtherDeviceNs,
      .evaluation_threads =
          options_.evaluation_threads > 0 ? options_.evaluation_threads : quarter_of_the_cores()};
  bool is_any_read = false;
  for (const auto& reader : readers_) {
    if (reader->sampler == nullptr) {
      give_up(*reader,
              reader->missing.empty() ? "this backend has none: they are of NVIDIA GPUs" : reader->missing);
      continue;
    }
    std::string error = reader->sampler->prepare(counters);
    reader->is_read = error.empty();
    is_any_read = is_any_read || reader->is_read;
    if (!reader->is_read) give_up(*reader, std::move(error));
  }
  return is_any_read;
}

void CounterCollector::give_up(RankReader& reader, std::string error) {
  reader.is_read = false;
  CounterWindow window;
  window.rank = reader.rank;
  window.error = readers_.size() == 1 ? "hardware counters: "
                                      : "hardware counters of rank " + std::to_string(reader.rank) + ": ";
  window.error += error;
  on_window_(window);
}

void CounterCollector::set_steps(int64_t first_step, int64_t last_step) {
  options_.first_step = first_step;  // the collector's thread looks at them when a step has ended
  options_.last_step = last_step;
}

bool CounterCollector::is_in_window(int64_t start_ns, int64_t end_ns) const {
  return end_ns >= window_begin_ns_.load(std::memory_order_relaxed) &&
         start_ns <= window_end_ns_.load(std::memory_order_relaxed);
}

void CounterCollector::consume(const StepRecord& record) noexcept {
  RankReader& first = *readers_.front();
  if (is_in_window(record.start_ns, record.end_ns)) first.queue.push(record);
  last_step_.store(record.step, std::memory_order_relaxed);
  first.last_start_ns.store(record.start_ns, std::memory_order_release);
  num_ended_.fetch_add(1, std::memory_order_release);
}

void CounterCollector::consume_stamps(int32_t rank, int64_t step, const StepStamps& stamps) noexcept {
  const auto found = std::ranges::find_if(readers_, [&](const auto& each) { return each->rank == rank; });
  if (found == readers_.end() || stamps.ops.empty()) return;
  RankReader& reader = **found;
  const int64_t start_ns = stamps.ops.front().begin_ns;
  if (is_in_window(start_ns, stamps.end_ns)) {
    try {
      StepRecord& record = reader.stamped;
      record.step = step;
      record.start_ns = start_ns;
      record.end_ns = stamps.end_ns;
      record.stamps = stamps;
      reader.queue.push(record);
    } catch (const std::exception&) {  // no memory for more stamps than ever before: the step is left out
    }
  }
  reader.last_start_ns.store(start_ns, std::memory_order_release);
}

/// False: there is no time left.
bool CounterCollector::sleep(const std::stop_token& stop, std::chrono::nanoseconds time) {
  std::unique_lock lock(wake_mutex_);
  wake_.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

/// Until a step of the range has ended since the last window, and another of the range may be running.
bool CounterCollector::wait_for_steps(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const uint64_t num_ended = num_ended_.load(std::memory_order_acquire);
    const int64_t next_step = last_step_.load(std::memory_order_relaxed) + 1;
    if (num_ended != num_seen_ && next_step > options_.last_step) return false;
    if (num_ended != num_seen_ && next_step >= options_.first_step) return true;
    sleep(stop, kWakeInterval);
  }
  return false;
}

/// A window of each rank, from begin to end.
void CounterCollector::sample(const std::stop_token& stop) {
  const auto for_each_good = [this](auto&& action) {
    for (const auto& reader : readers_) {
      if (reader->is_read && reader->error.empty()) reader->error = action(*reader);
    }
  };
  window_end_ns_.store(kNever, std::memory_order_relaxed);
  const int64_t asked_ns = now_ns();
  window_begin_ns_.store(asked_ns, std::memory_order_relaxed);
  for (const auto& reader : readers_)
    reader->error.clear();
  for_each_good([](RankReader& reader) { return reader.sampler->begin_window(); });
  sleep(stop, options_.window);
  for_each_good([](RankReader& reader) { return reader.sampler->end_window(); });
  window_end_ns_.store(now_ns(), std::memory_order_relaxed);
  for_each_good([&](RankReader& reader) {
    reader.samples = {};
    std::string error = reader.sampler->drain(reader.samples);
    reader.samples.asked_ns = asked_ns;
    return error;
  });
}

/// Records of the window's steps, once every rank has gone on to a step behind it, or has none.
void CounterCollector::take_records(const std::stop_token& stop) {
  const int64_t end_ns = window_end_ns_.load(std::memory_order_relaxed);
  const auto deadline = std::chrono::steady_clock::now() + kLastStep;
  for (const auto& reader : readers_)
    reader->records.clear();
  for (;;) {
    // Asked before the queues are emptied: what was pushed before it is taken.
    const uint64_t num_ended = num_ended_.load(std::memory_order_acquire);
    const bool are_all_behind = std::ranges::all_of(readers_, [&](const auto& reader) {
      const bool gives_records = reader->is_read || reader == readers_.front();
      return !gives_records || reader->last_start_ns.load(std::memory_order_acquire) > end_ns;
    });
    const bool is_whole =
        are_all_behind || std::chrono::steady_clock::now() > deadline || stop.stop_requested();
    for (const auto& reader : readers_) {
      while (const StepRecord* record = reader->queue.front()) {
        reader->records.push_back(*record);
        reader->queue.pop();
      }
    }
    num_seen_ = num_ended;
    if (is_whole) break;
    sleep(stop, kWakeInterval);
  }
  window_begin_ns_.store(kNever, std::memory_order_relaxed);
  add_batches();
}

/// A step computes the same on all ranks, and the first rank's record describes it. Leaves out steps without such a record.
void CounterCollector::add_batches() {
  const std::vector<StepRecord>& first = readers_.front()->records;
  for (const auto& reader : readers_) {
    if (reader == readers_.front()) continue;
    std::erase_if(reader->records, [&](StepRecord& record) {
      const auto same = std::ranges::find(first, record.step, &StepRecord::step);
      if (same == first.end()) return true;
      record.batch = same->batch;
      return false;
    });
  }
}

/// False: there will be no other.
bool CounterCollector::give_windows() {
  bool is_any_read = false;
  for (const auto& reader : readers_) {
    if (!reader->is_read) continue;
    if (!reader->error.empty()) {
      give_up(*reader, reader->error);
      continue;
    }
    CounterWindow window =
        reader->profile.add(std::move(reader->samples), reader->records, reader->sampler->setup());
    window.rank = reader->rank;
    on_window_(window);
    is_any_read = true;
  }
  return is_any_read;
}

void CounterCollector::run(const std::stop_token& stop) {
  while (wait_for_steps(stop)) {
    const auto begin = std::chrono::steady_clock::now();
    sample(stop);
    take_records(stop);
    if (!give_windows()) return;
    if (!sleep(stop, std::max<std::chrono::nanoseconds>(
                         options_.every - (std::chrono::steady_clock::now() - begin), {}))) {
      return;
    }
  }
}

}  // namespace minfer
