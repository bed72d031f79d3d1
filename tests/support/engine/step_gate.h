#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace minfer::test {

/// Holds the steps of a scripted engine until the test lets them pass, so that "while it runs" does not depend on time. Shut at
/// first. Any thread.
class StepGate {
 public:
  /// Called on the engine thread at the begin of a step: waits until the step may pass. Throws std::runtime_error if it may not
  /// for a long time, so that a failed test ends.
  void pass();

  /// Lets all steps pass from now on.
  void open();
  /// From now on, lets only the steps of let_pass() pass.
  void shut();
  /// Lets `count` steps pass, including those that already wait.
  void let_pass(int64_t count = 1);

  /// The number of steps that have reached the gate, including the waiting one.
  int64_t num_arrived() const;
  // For a shut gate. Both return false if it takes too long.
  /// Waits until a step waits at the gate.
  [[nodiscard]] bool wait_for_arrival();
  /// Lets `count` steps pass, first the one that waits at the gate, and waits until the next one arrives: by then the work of
  /// the passed steps is done.
  [[nodiscard]] bool run_steps(int64_t count);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
  int64_t num_allowed_ = 0;  ///< of the steps that arrive while it is shut
  int64_t num_arrived_ = 0, num_passed_ = 0;
};

}  // namespace minfer::test
