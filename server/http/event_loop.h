#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>

namespace minfer {

/// The server's I/O thread, which is the thread that calls run(). It owns connections, requests in flight and their buffers, so none
/// of them needs a lock. A few background threads do work that would delay everybody's tokens: parsing and tokenising a large body.
class EventLoop {
 public:
  explicit EventLoop(int background_threads = 2);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Runs posted tasks until stop() is called.
  void run();
  /// Stops run(). From any thread.
  void stop();
  /// Makes the I/O thread run `task`. From any thread; tasks of one thread keep their order.
  void post(std::function<void()> task);
  /// The same, after `delay`. From the I/O thread, or before run().
  void post_after(std::chrono::milliseconds delay, std::function<void()> task);
  /// Makes a background thread run `task`, which must not throw. Only one task with takes_long
  /// (seconds) runs at a time, so that a thread is left for the others. From any thread.
  void run_in_background(std::function<void()> task, bool takes_long = false);
  /// The same on a separate thread, one task at a time: such tasks may take seconds, and delay only each other.
  void run_apart(std::function<void()> task);
  /// Waits for running background work and drops queued work. After it, objects that tasks refer to may be destroyed.
  void end_background_work();
  /// Makes the I/O thread call `handler` for each of these signals that the process gets from now on.
  void on_signals(std::initializer_list<int> signals, std::function<void(int)> handler);
  /// Gives these signals their default effect again.
  void reset_signals();

  struct Impl;  ///< Boost.Asio's objects; defined in event_loop_impl.h for the files that use sockets
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace minfer
