#include "tests/support/engine/step_gate.h"

#include <stdexcept>

#include "tests/support/wait.h"

namespace minfer::test {

void StepGate::pass() {
  std::unique_lock lock(mutex_);
  ++num_arrived_;
  changed_.notify_all();
  if (!changed_.wait_for(lock, kPatience, [this] { return is_open_ || num_allowed_ > 0; }))
    throw std::runtime_error("the test left the gate shut");
  if (!is_open_) --num_allowed_;
  ++num_passed_;
}

void StepGate::open() {
  const std::lock_guard lock(mutex_);
  is_open_ = true;
  changed_.notify_all();
}

void StepGate::shut() {
  const std::lock_guard lock(mutex_);
  is_open_ = false;
  num_allowed_ = 0;
}

void StepGate::let_pass(int64_t count) {
  const std::lock_guard lock(mutex_);
  num_allowed_ += count;
  changed_.notify_all();
}

int64_t StepGate::num_arrived() const {
  const std::lock_guard lock(mutex_);
  return num_arrived_;
}

bool StepGate::wait_for_arrival() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [this] { return num_arrived_ > num_passed_; });
}

bool StepGate::run_steps(int64_t count) {
  if (!wait_for_arrival()) return false;
  std::unique_lock lock(mutex_);
  const int64_t behind_them = num_arrived_ + count;
  num_allowed_ += count;
  changed_.notify_all();
  return changed_.wait_for(lock, kPatience, [&] { return num_arrived_ == behind_them; });
}

}  // namespace minfer::test
