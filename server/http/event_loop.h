#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/strand.hpp>

namespace minfer {

/// Where tasks of the server run: see EventLoop.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  virtual void post(std::function<void()> task) = 0;
  virtual void post_after(std::chrono::milliseconds delay, std::function<void()> task) = 0;
  virtual void run_in_background(std::function<void()> task, bool takes_long = false) = 0;
  virtual void run_apart(std::function<void()> task) = 0;
};

/// The server's I/O thread, which is the thread that calls run(). It owns connections, requests in flight and their buffers, so none
/// of them needs a lock. A few background threads do work that would delay everybody's tokens: parsing and tokenising a large body.
class EventLoop final : public TaskRunner {
 public:
  /// Throws Error if the system refuses a thread. boost::asio::thread_pool would wait forever for the threads it has.
  explicit EventLoop(int num_background_threads = 2);
  ~EventLoop() override { end_background_work(); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Runs posted tasks until stop() is called.
  void run();
  /// Stops run(). From any thread.
  void stop() { context_.stop(); }
  /// Makes the I/O thread run `task`. From any thread; tasks of one thread keep their order.
  void post(std::function<void()> task) override { boost::asio::post(context_, std::move(task)); }
  /// The same, after `delay`. From the I/O thread, or before run().
  void post_after(std::chrono::milliseconds delay, std::function<void()> task) override;
  /// Makes a background thread run `task`, which must not throw. Only one task with takes_long
  /// (seconds) runs at a time, so that a thread is left for the others. From any thread.
  void run_in_background(std::function<void()> task, bool takes_long = false) override;
  /// The same on a separate thread, one task at a time: such tasks may take seconds, and delay only each other.
  void run_apart(std::function<void()> task) override { boost::asio::post(apart_, std::move(task)); }
  /// Waits for running background work and drops queued work. After it, objects that tasks refer to may be destroyed.
  void end_background_work();
  /// Makes the I/O thread call `handler` for each of these signals that the process gets from now on.
  void on_signals(std::initializer_list<int> signals, std::function<void(int)> handler);
  /// Gives these signals their default effect again.
  void reset_signals();

  boost::asio::io_context& context() { return context_; }  ///< for sockets

 private:
  using Executor = boost::asio::io_context::executor_type;
  using WorkGuard = boost::asio::executor_work_guard<Executor>;

  void wait_for_signal();

  boost::asio::io_context context_{1};  ///< one thread runs it: no locking of handlers
  boost::asio::signal_set signals_{context_};
  std::function<void(int)> on_signal_;
  boost::asio::io_context background_;
  const WorkGuard background_stays_{background_.get_executor()};
  boost::asio::strand<Executor> long_tasks_{background_.get_executor()};
  boost::asio::io_context apart_;
  const WorkGuard apart_stays_{apart_.get_executor()};
  std::vector<std::jthread> threads_;  ///< the last one runs apart_
};

}  // namespace minfer
