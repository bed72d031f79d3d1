#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace minfer::test {

/// Holds the steps of a scripted engine until the test lets them pass, so that "while it runs" does not depend on time. Shut at
/// first. Any thread.
class StepGate {
 public:
  /// On the engine thread, where a step begins: waits until it may. Throws std::runtime_error if nobody lets it pass for long, so
  /// that a test that has failed ends.
  void pass();

  /// Lets all steps pass from now on.
  void open();
  /// Lets none pass from now on but those of let_pass().
  void shut();
  /// Lets `count` steps pass, those that wait already among them.
  void let_pass(int64_t count = 1);

  /// Steps that have come to the gate so far, the waiting one among them.
  int64_t num_arrived() const;
  // While it is shut. False: it took too long.
  /// Waits until a step waits at the gate.
  [[nodiscard]] bool wait_for_arrival();
  /// Lets `count` steps pass, first the one that waits at the gate, and waits for the one behind them: what they did has been
  /// done then.
  [[nodiscard]] bool run_steps(int64_t count);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
  int64_t num_allowed_ = 0;  ///< of those that arrive while it is shut
  int64_t num_arrived_ = 0, num_passed_ = 0;
};

}  // namespace minfer::test
