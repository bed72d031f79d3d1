#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "kernels/base/clock.h"
#include "server/http/event_loop.h"

namespace minfer {

/// Counts what uses a model that may be unloaded: its requests, and tasks in the background. Any thread.
class ModelUses {
 public:
  /// The model is in use until the last copy of the result goes. `is_request`: last_request_ns() tells of it.
  std::shared_ptr<const void> hold(bool is_request) const {
    ++state_->count;
    if (is_request) ++state_->num_requests;
    return {nullptr, [state = state_, is_request](const void*) {
              if (is_request) state->last_request_ns = now_ns();
              if (is_request) --state->num_requests;
              --state->count;
            }};
  }
  bool none() const { return state_->count == 0; }
  bool has_requests() const { return state_->num_requests > 0; }
  /// When the last request ended; before that, when this was made.
  int64_t last_request_ns() const { return state_->last_request_ns; }

 private:
  struct State {
    std::atomic<int64_t> count{0}, num_requests{0};
    std::atomic<int64_t> last_request_ns{now_ns()};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// The server's tasks as the parts of one model use them. Background tasks count as uses of the model. After
/// close(), tasks of the I/O thread that still wait do nothing, so that the model may be destroyed.
class ModelTasks final : public TaskRunner {
 public:
  /// `loop` outlives this.
  ModelTasks(TaskRunner& loop, ModelUses uses) : loop_(loop), uses_(std::move(uses)) {}

  void post(std::function<void()> task) override { loop_.post(unless_closed(std::move(task))); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> task) override {
    loop_.post_after(delay, unless_closed(std::move(task)));
  }
  void run_in_background(std::function<void()> task, bool takes_long = false) override {
    loop_.run_in_background(held(std::move(task)), takes_long);
  }
  void run_apart(std::function<void()> task) override { loop_.run_apart(held(std::move(task))); }
  /// I/O thread, while nothing uses the model.
  void close() { *is_open_ = false; }

 private:
  std::function<void()> unless_closed(std::function<void()> task) const {
    return [is_open = is_open_, task = std::move(task)] {
      if (*is_open) task();
    };
  }
  std::function<void()> held(std::function<void()> task) const {
    return [hold = uses_.hold(false), task = std::move(task)] { task(); };
  }

  TaskRunner& loop_;
  const ModelUses uses_;
  const std::shared_ptr<bool> is_open_ = std::make_shared<bool>(true);  ///< I/O thread
};

}  // namespace minfer
