#include <iterator>
#include <new>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "server/http/event_loop_impl.h"
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

void wait_for_signal(EventLoop::Impl& impl) {
  impl.signals.async_wait([&impl](const boost::system::error_code& error, int signal) {
    if (error) return;
    impl.on_signal(signal);
    wait_for_signal(impl);
  });
}

}  // namespace

EventLoop::Impl::Impl(int num_background_threads) {
  try {
    while (std::ssize(background_threads) < num_background_threads)
      background_threads.emplace_back([this] { run_all(background); });
    background_threads.emplace_back([this] {
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceApart);  // if not, it is as the others
      run_all(apart);
    });
  } catch (const std::exception& error) {
    const size_t started = background_threads.size();
    end_background_work();
    fail("server: the system gave {} of {} background threads: {}", started, num_background_threads + 1,
         error.what());
  }
}

EventLoop::EventLoop(int background_threads) : impl_(std::make_unique<Impl>(background_threads)) {}

EventLoop::~EventLoop() = default;

void EventLoop::end_background_work() {
  impl_->end_background_work();
}

void EventLoop::run() {
  const auto work = boost::asio::make_work_guard(impl_->context);
  set_memory_aside();
  use_memory_reserve(true);
  run_all(impl_->context);
  use_memory_reserve(false);
}

void EventLoop::stop() {
  impl_->context.stop();
}

void EventLoop::post(std::function<void()> task) {
  boost::asio::post(impl_->context, std::move(task));
}

void EventLoop::post_after(std::chrono::milliseconds delay, std::function<void()> task) {
  auto timer = std::make_unique<boost::asio::steady_timer>(impl_->context, delay);
  auto& waiting = *timer;
  waiting.async_wait(
      [timer = std::move(timer), task = std::move(task)](const boost::system::error_code& error) {
        if (!error) task();
      });
}

void EventLoop::run_in_background(std::function<void()> task, bool takes_long) {
  if (!takes_long) return boost::asio::post(impl_->background, std::move(task));
  boost::asio::post(impl_->long_tasks, [task = std::move(task)] {
    task();
    ::malloc_trim(0);  // hundreds of megabytes, which malloc would keep for this thread
  });
}

void EventLoop::run_apart(std::function<void()> task) {
  boost::asio::post(impl_->apart, std::move(task));
}

void EventLoop::on_signals(std::initializer_list<int> signals, std::function<void(int)> handler) {
  for (const int signal : signals)
    impl_->signals.add(signal);
  impl_->on_signal = std::move(handler);
  wait_for_signal(*impl_);
}

void EventLoop::reset_signals() {
  boost::system::error_code ignored;
  impl_->signals.clear(ignored);
}

}  // namespace minfer
