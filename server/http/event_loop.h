#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>

namespace minfer {

/// The server's I/O thread: whoever calls run(). Connections, requests in flight and their buffers belong to it, so none of them needs a
/// lock. Beside it stand a few background threads for work that would hold up everybody's tokens: parsing and tokenising a large body.
class EventLoop {
 public:
  explicit EventLoop(int background_threads = 2);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Runs what is posted until stop() is called.
  void run();
  /// From any thread.
  void stop();
  /// Has the I/O thread run `task`. From any thread; tasks of one thread keep their order.
  void post(std::function<void()> task);
  /// The same, after `delay`. From the I/O thread, or before run().
  void post_after(std::chrono::milliseconds delay, std::function<void()> task);
  /// Has a background thread run `task`, which must not throw. Of those that may take seconds only one runs
  /// at a time, so that a thread is left for the others. From any thread.
  void run_in_background(std::function<void()> task, bool takes_long = false);
  /// The same on a thread that is for such tasks alone, one at a time: they may take seconds, and hold up each other only.
  void run_apart(std::function<void()> task);
  /// Waits for background work that has begun and drops what is only queued: what tasks refer to may go then.
  void end_background_work();
  /// Has the I/O thread call `handler` for each of these signals the process gets from now on.
  void on_signals(std::initializer_list<int> signals, std::function<void(int)> handler);
  /// Gives them their default effect again.
  void reset_signals();

  struct Impl;  ///< Boost.Asio's objects; defined in event_loop_impl.h for the files that use sockets
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace minfer
