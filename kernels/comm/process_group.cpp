#include "kernels/comm/process_group.h"

#include <algorithm>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace minfer {
namespace {

using Clock = std::chrono::steady_clock;

/// The pause between two looks for a message. It only yields at first, since most messages come soon, and then sleeps, longer and
/// longer, so that a process that waits for a request takes next to nothing.
class Pause {
 public:
  void take() {
    const auto waited = Clock::now() - begin_;
    if (waited < kYields) return std::this_thread::yield();
    std::this_thread::sleep_for(
        std::clamp<Clock::duration>(waited / 16, kShortest, waited < kIdle ? kLongest : kLongestIdle));
  }

 private:
  static constexpr std::chrono::microseconds kYields{200};
  static constexpr std::chrono::microseconds kShortest{20};
  static constexpr std::chrono::microseconds kLongest{1000};
  static constexpr std::chrono::seconds kIdle{2};  ///< after this wait, sleeps grow to kLongestIdle
  static constexpr std::chrono::milliseconds kLongestIdle{5};
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<ProcessTransport> transport, const ProcessInfo& own)
    : rank_(transport->rank()),
      transport_(std::move(transport)),
      processes_(static_cast<size_t>(rank_.count)),
      lifelines_(rank_, failure_, [this](int32_t rank) { return name_of(rank); }) {
  greet(own);
  lifelines_.watch([this] { on_failure(); });
}

ProcessGroup::~ProcessGroup() {
  lifelines_.stop_watching();
  if (ended_in_order_) {
    transport_->finish();
  } else {
    lifelines_.tell(failure_->is_set() ? failure_->reason()
                                       : fmt::format("{} has ended before the others", name_of(rank_.index)));
  }
}

/// Each process tells all others its name, host and cores; the first one also tells its address.
void ProcessGroup::greet(const ProcessInfo& own) {
  const std::string where = rank_.is_first() ? lifelines_.listen() : "";
  const std::vector<std::string> greetings =
      exchange(Tag::greeting, fmt::format("{}\n{}\n{}\n{}\n", own.host, own.process_id, own.cores, where));
  std::string process_id, first_is_at;
  for (size_t other = greetings.size(); other-- > 0;) {
    std::istringstream lines(greetings[other]);
    ProcessInfo& process = processes_[other];
    std::getline(lines, process.host);
    std::getline(lines, process_id);
    std::getline(lines, process.cores);
    std::getline(lines, first_is_at);
    process.process_id = std::atoll(process_id.c_str());
  }
  if (rank_.is_first()) {
    num_unwatched_ = rank_.count - 1 - lifelines_.accept(rank_.count - 1);
  } else {
    num_unwatched_ = lifelines_.connect(first_is_at) ? 0 : 1;
  }
}

std::string ProcessGroup::name_of(int32_t rank) const {
  const ProcessInfo& process = processes_[static_cast<size_t>(rank)];
  return fmt::format("rank {} (host {}, process {})", rank, process.host, process.process_id);
}

int32_t ProcessGroup::num_on_same_cores() const {
  const ProcessInfo& own = processes_[static_cast<size_t>(rank_.index)];
  return static_cast<int32_t>(std::ranges::count_if(processes_, [&](const ProcessInfo& process) {
    return process.host == own.host && process.cores == own.cores;
  }));
}

void ProcessGroup::fail(const std::string& why) {
  failure_->set(why);
  lifelines_.tell(why);
}

void ProcessGroup::when_failed(std::function<void(const std::string&)> task) {
  const std::lock_guard lock(on_failure_mutex_);
  on_failure_ = std::move(task);
  if (on_failure_ && failure_->is_set()) on_failure_(failure_->reason());
}

/// The first process is connected with all others, so they hear of the failure through it.
void ProcessGroup::on_failure() {
  if (rank_.is_first()) lifelines_.tell(failure_->reason());
  const std::lock_guard lock(on_failure_mutex_);
  if (on_failure_) on_failure_(failure_->reason());
}

void ProcessGroup::check() {
  if (!failure_->is_set()) lifelines_.look();
  failure_->check();
}

void ProcessGroup::give_up(const std::string& why) {
  fail(why);
  failure_->check();
  throw DeviceError(why);
}

void ProcessGroup::give_up_waiting(int32_t rank, std::string_view what, std::chrono::milliseconds patience) {
  give_up(
      fmt::format("{} waited {} ms for {}: {}", name_of(rank_.index), patience.count(), name_of(rank), what));
}

/// All processes tell the first one, which answers after it has heard from all: no process goes while another still watches it.
void ProcessGroup::end_in_order(std::chrono::milliseconds patience) {
  std::byte sent{}, received{};
  const auto finish = [&](Transfer transfer) { wait({&transfer, 1}, "the end", patience); };
  const auto send_to = [&](int32_t other) { finish(begin_send(other, Tag::end, {&sent, 1})); };
  const auto receive_from = [&](int32_t other) { finish(begin_receive(other, Tag::end, {&received, 1})); };
  if (rank_.is_first()) {
    for (int32_t other = 1; other < rank_.count; ++other)
      receive_from(other);
    lifelines_.stop_watching();
    for (int32_t other = 1; other < rank_.count; ++other)
      send_to(other);
  } else {
    send_to(0);
    lifelines_.stop_watching();
    receive_from(0);
  }
  ended_in_order_ = true;
}

Transfer ProcessGroup::begin_send(int32_t to, Tag tag, std::span<const std::byte> bytes) {
  check();  // MPI ends a process that sends to one that has gone
  const int32_t id = transport_->begin_send(to, static_cast<int32_t>(tag), bytes.data(), bytes.size());
  if (id < 0) give_up(fmt::format("cannot send to {}: {}", name_of(to), transport_->error()));
  return {id, to};
}

Transfer ProcessGroup::begin_receive(int32_t from, Tag tag, std::span<std::byte> bytes) {
  const int32_t id = transport_->begin_receive(from, static_cast<int32_t>(tag), bytes.data(), bytes.size());
  if (id < 0) give_up(fmt::format("cannot receive from {}: {}", name_of(from), transport_->error()));
  return {id, from};
}

bool ProcessGroup::is_done(Transfer transfer) {
  const ProcessTransport::Progress progress = transport_->progress(transfer.id);
  if (progress == ProcessTransport::Progress::failed)
    give_up(fmt::format("no exchange with {}: {}", name_of(transfer.rank), transport_->error()));
  return progress == ProcessTransport::Progress::done;
}

void ProcessGroup::wait(std::span<const Transfer> transfers, std::string_view what,
                        std::chrono::milliseconds patience) {
  waiting_.assign(transfers.begin(), transfers.end());
  const auto end = Clock::now() + patience;
  for (Pause pause;; pause.take()) {
    std::erase_if(waiting_, [this](Transfer transfer) { return is_done(transfer); });
    if (waiting_.empty()) return;
    failure_->check();
    if (patience != kNoLimit && Clock::now() > end) give_up_waiting(waiting_.front().rank, what, patience);
  }
}

void ProcessGroup::receive(int32_t from, Tag tag, std::vector<std::byte>& message,
                           std::chrono::milliseconds patience) {
  const auto end = Clock::now() + patience;
  for (Pause pause; !receive_if_there(from, tag, message); pause.take()) {
    failure_->check();
    if (patience != kNoLimit && Clock::now() > end) give_up_waiting(from, "a message", patience);
  }
}

bool ProcessGroup::receive_if_there(int32_t from, Tag tag, std::vector<std::byte>& message) {
  const int64_t size = transport_->size_of_next(from, static_cast<int32_t>(tag));
  if (size < 0) return false;
  message.resize(static_cast<size_t>(size));
  const Transfer transfer = begin_receive(from, tag, message);
  wait({&transfer, 1}, "a message", kNoLimit);
  return true;
}

std::vector<std::string> ProcessGroup::exchange(Tag tag, const std::string& own,
                                                std::chrono::milliseconds patience) {
  std::vector<Transfer> sent;
  for (int32_t other = 0; other < rank_.count; ++other)
    if (other != rank_.index) sent.push_back(begin_send(other, tag, std::as_bytes(std::span(own))));
  std::vector<std::string> all(static_cast<size_t>(rank_.count), own);
  std::vector<std::byte> message;
  for (int32_t other = 0; other < rank_.count; ++other) {
    if (other == rank_.index) continue;
    receive(other, tag, message, patience);
    all[static_cast<size_t>(other)].assign(reinterpret_cast<const char*>(message.data()), message.size());
  }
  wait(sent, "what ranks tell each other", patience);
  return all;
}

void Outbox::send(int32_t first, int32_t last, std::span<const std::byte> bytes) {
  constexpr size_t kMostUnderWay = 64;  // more than the steps that a device is ahead
  const auto has_left = [this](Message& message) {
    std::erase_if(message.transfers, [this](Transfer transfer) { return processes_->is_done(transfer); });
    return message.transfers.empty();
  };
  while (!under_way_.empty() && has_left(under_way_.front()))
    under_way_.pop_front();
  wait(kMostUnderWay - 1);
  Message& message = under_way_.emplace_back();
  message.bytes.assign(bytes.begin(), bytes.end());
  for (int32_t other = first; other <= last; ++other)
    message.transfers.push_back(processes_->begin_send(other, tag_, message.bytes));
}

void Outbox::wait(size_t most) {
  for (; under_way_.size() > most; under_way_.pop_front())
    processes_->wait(under_way_.front().transfers, what_, patience_);
}

}  // namespace minfer
