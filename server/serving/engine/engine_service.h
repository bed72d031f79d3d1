#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace minfer {

/// The engine's state as of its last step.
struct EngineStatus {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t kv_blocks_used = 0;
  int32_t kv_blocks_total = 0;
  bool busy = false;             ///< has work, or a step that is not recorded yet
  int64_t last_progress_ns = 0;  ///< when it last finished a step or had nothing to do
  bool failed = false;           ///< a step threw: it has ended for good
};

/// Runs an engine on a thread of its own. Requests and cancellations go in through a list that the engine takes between
/// two steps. Outputs come out through a list that the I/O thread takes when it gets to it. The engine never waits for
/// anybody: if the I/O thread is slower than the engine, outputs gather, and the next take finds several for a request.
class EngineService {
 public:
  struct Callbacks {
    /// Called when there are outputs to take and were none before. Called from the engine thread; returns at once.
    std::function<void()> on_outputs;
    /// Called when a step failed, with the reason. Called from the engine thread, at most once.
    std::function<void(const std::string& reason)> on_failure;
  };

  /// Only the service uses the engine until the service is destroyed.
  EngineService(Engine& engine, Callbacks callbacks);
  /// Ends the thread after the step in progress, however long that takes: see stop().
  ~EngineService();
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  // From any thread.
  /// Submits requests. A request that the engine does not take is answered as refused.
  void submit(std::vector<Request> requests);
  /// Cancels requests; their blocks are free before the next step. Ignores unknown ids.
  void cancel(std::vector<std::string> ids);
  /// Makes the engine thread run `task` between two steps, soon, with or without other work.
  void run_between_steps(std::function<void(Engine&)> task);
  /// The outputs since the last call, in order.
  std::vector<RequestOutput> take_outputs() {
    const std::lock_guard lock(outbox_mutex_);
    return std::exchange(outbox_, {});
  }
  EngineStatus status() const {
    const std::lock_guard lock(status_mutex_);
    return status_;
  }
  /// Ends the thread after the step in progress. Returns false if that step takes longer than `patience`.
  bool stop(std::chrono::milliseconds patience);

 private:
  using Command = std::function<void(Engine&)>;

  void run(const std::stop_token& stop);
  void wait_for_command(std::unique_lock<std::mutex>& lock, const std::stop_token& stop);
  bool take_commands(const std::stop_token& stop);
  void submit_to(Engine& engine, Request& request);
  void put_outputs(std::span<RequestOutput> outputs);
  void publish_status();

  Engine& engine_;
  bool in_step_ = false;  ///< engine thread: a step's outputs leave before it is recorded
  const Callbacks callbacks_;

  std::mutex inbox_mutex_;
  std::condition_variable_any wake_;
  std::vector<Command> inbox_;
  std::atomic<bool> has_commands_{false};
  std::vector<Command> commands_;  ///< engine thread: the commands being executed

  std::mutex outbox_mutex_;
  std::vector<RequestOutput> outbox_;

  mutable std::mutex status_mutex_;
  EngineStatus status_;
  std::promise<void> ended_;  ///< the thread calls nothing any more
  const std::future<void> has_ended_ = ended_.get_future();

  std::jthread thread_;  ///< last: everything above outlives it
};

}  // namespace minfer
