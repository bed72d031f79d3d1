#include "server/http/event_loop.h"

#include <iterator>
#include <memory>
#include <new>

#include <boost/asio/steady_timer.hpp>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "server/http/memory_reserve.h"

namespace minfer {
namespace {

/// The niceness of the thread for tasks that take seconds, which leaves the cores to the engine's threads (Linux: a thread's own).
constexpr int kNiceApart = 5;

/// Runs posted tasks until the context is stopped. If memory runs out within a task, only that task ends.
void run_all(boost::asio::io_context& context) {
  while (!context.stopped()) {
    try {
      context.run();
    } catch (const std::bad_alloc&) {
    }
  }
}

}  // namespace

EventLoop::EventLoop(int num_background_threads) {
  try {
    while (std::ssize(threads_) < num_background_threads)
      threads_.emplace_back([this] { run_all(background_); });
    threads_.emplace_back([this] {
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceApart);  // if not, it is as the others
      run_all(apart_);
    });
  } catch (const std::exception& error) {
    const size_t started = threads_.size();
    end_background_work();
    fail("server: the system gave {} of {} background threads: {}", started, num_background_threads + 1,
         error.what());
  }
}

void EventLoop::end_background_work() {
  apart_.stop();
  background_.stop();
  threads_.clear();  // joins
}

void EventLoop::run() {
  const auto work = boost::asio::make_work_guard(context_);
  set_memory_aside();
  use_memory_reserve(true);
  run_all(context_);
  use_memory_reserve(false);
}

void EventLoop::post_after(std::chrono::milliseconds delay, std::function<void()> task) {
  auto timer = std::make_unique<boost::asio::steady_timer>(context_, delay);
  auto& waiting = *timer;
  waiting.async_wait(
      [timer = std::move(timer), task = std::move(task)](const boost::system::error_code& error) {
        if (!error) task();
      });
}

void EventLoop::run_in_background(std::function<void()> task, bool takes_long) {
  if (!takes_long) return boost::asio::post(background_, std::move(task));
  boost::asio::post(long_tasks_, [task = std::move(task)] {
    task();
    ::malloc_trim(0);  // hundreds of megabytes, which malloc would keep for this thread
  });
}

void EventLoop::on_signals(std::initializer_list<int> signals, std::function<void(int)> handler) {
  for (const int signal : signals)
    signals_.add(signal);
  on_signal_ = std::move(handler);
  wait_for_signal();
}

void EventLoop::wait_for_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    on_signal_(signal);
    wait_for_signal();
  });
}

void EventLoop::reset_signals() {
  boost::system::error_code ignored;
  signals_.clear(ignored);
}

}  // namespace minfer
