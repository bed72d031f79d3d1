#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/comm/lifelines.h"
#include "kernels/comm/process_transport.h"
#include "kernels/comm/rank_failure.h"

namespace minfer {

/// The process that a rank is.
struct ProcessInfo {
  std::string host;
  int64_t process_id = 0;
  std::string cores;  ///< that it may run on; the same text on the same host: two processes share them
};

/// A message on its way from or to `rank`.
struct Transfer {
  int32_t id = 0;
  int32_t rank = 0;
};

/// This process among those that a launcher started together, each a rank: names, messages, and waits that end when a process has
/// gone. Used from one thread at a time, except fail(). All functions throw DeviceError once a rank has failed.
class ProcessGroup {
 public:
  /// The purpose of a message. Messages of each tag keep their own order.
  enum class Tag : int32_t { greeting, agreement, meeting, order, sum, part, tokens, steps, end, exchange };
  /// For a wait without a time limit.
  static constexpr std::chrono::milliseconds kNoLimit{0};

  /// Greets the other processes, which make their groups at the same time.
  ProcessGroup(std::unique_ptr<ProcessTransport> transport, const ProcessInfo& own);
  /// After an orderly end, waits for the others to arrive here too; else tells them that this process has ended.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  Rank rank() const { return rank_; }
  /// E.g. "rank 1 (host b, process 4711)".
  std::string name_of(int32_t rank) const;
  const std::string& host_of(int32_t rank) const { return processes_[static_cast<size_t>(rank)].host; }
  /// The number of processes that run on the same cores as this one, itself included.
  int32_t num_on_same_cores() const;
  /// The number of processes whose end would go unnoticed, because no connection could be made.
  int32_t num_unwatched() const { return num_unwatched_; }

  RankFailure& failure() { return *failure_; }
  /// Tells the others that this rank has failed. Any thread.
  void fail(const std::string& why);
  /// Throws if a rank has failed.
  void check();
  /// Calls `task`, on another thread, when another process has gone or told that it failed (at once, on this thread, if it has failed
  /// before): the thread that exchanges messages may be held up, because MPI ends or waits when a connection breaks. Null: no more calls.
  void when_failed(std::function<void(const std::string& why)> task);
  /// Meets the other processes for the last time: nothing may be sent or received afterwards.
  void end_in_order(std::chrono::milliseconds patience);

  /// The bytes stay valid until wait() or is_done() has ended the transfer.
  Transfer begin_send(int32_t to, Tag tag, std::span<const std::byte> bytes);
  Transfer begin_receive(int32_t from, Tag tag, std::span<std::byte> bytes);
  /// Returns whether the transfer is done. Do not ask again after true.
  bool is_done(Transfer transfer);
  /// Waits for all of them. `what` describes the wait in the error at `patience`.
  void wait(std::span<const Transfer> transfers, std::string_view what, std::chrono::milliseconds patience);
  /// Waits for the next message, of any size.
  void receive(int32_t from, Tag tag, std::vector<std::byte>& message,
               std::chrono::milliseconds patience = kNoLimit);
  /// Takes the next message if it is there. Returns false if none is.
  bool receive_if_there(int32_t from, Tag tag, std::vector<std::byte>& message);
  /// Returns the texts of all ranks, by rank. All call it, in the same order.
  std::vector<std::string> exchange(Tag tag, const std::string& own,
                                    std::chrono::milliseconds patience = kNoLimit);

 private:
  void greet(const ProcessInfo& own);
  void on_failure();
  [[noreturn]] void give_up(const std::string& why);
  [[noreturn]] void give_up_waiting(int32_t rank, std::string_view what, std::chrono::milliseconds patience);

  Rank rank_;
  std::unique_ptr<ProcessTransport> transport_;
  std::shared_ptr<RankFailure> failure_ = std::make_shared<RankFailure>();
  std::vector<ProcessInfo> processes_;
  int32_t num_unwatched_ = 0;
  bool ended_in_order_ = false;
  std::vector<Transfer> waiting_;  ///< reused
  std::mutex on_failure_mutex_;
  std::function<void(const std::string&)> on_failure_;
  Lifelines lifelines_;
};

/// Messages of one tag on their way to other ranks, with their bytes. Only a sender whom the others are far behind waits.
class Outbox {
 public:
  /// `what` describes a wait in the error at `patience`.
  Outbox(std::shared_ptr<ProcessGroup> processes, ProcessGroup::Tag tag, std::string_view what,
         std::chrono::milliseconds patience)
      : processes_(std::move(processes)), tag_(tag), what_(what), patience_(patience) {}

  /// Sends to the ranks `first` to `last`.
  void send(int32_t first, int32_t last, std::span<const std::byte> bytes);
  /// Waits until at most `most` messages are under way.
  void wait(size_t most = 0);

 private:
  struct Message {
    std::vector<std::byte> bytes;
    std::vector<Transfer> transfers;  ///< those that are not known to be done
  };

  std::shared_ptr<ProcessGroup> processes_;
  ProcessGroup::Tag tag_;
  std::string_view what_;
  std::chrono::milliseconds patience_;
  std::deque<Message> under_way_;
};

}  // namespace minfer
