#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/http/event_loop_impl.h"

namespace minfer {
namespace {

void wait_for_signal(EventLoop::Impl& impl) {
  impl.signals.async_wait([&impl](const boost::system::error_code& error, int signal) {
    if (error) return;
    impl.on_signal(signal);
    wait_for_signal(impl);
  });
}

}  // namespace

EventLoop::EventLoop(int background_threads) : impl_(std::make_unique<Impl>(background_threads)) {}

EventLoop::~EventLoop() {
  end_background_work();
}

void EventLoop::end_background_work() {
  impl_->apart.stop();
  impl_->background.stop();
  impl_->apart.join();
  impl_->background.join();
}

void EventLoop::run() {
  const auto work = boost::asio::make_work_guard(impl_->context);
  impl_->context.run();
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
  takes_long ? boost::asio::post(impl_->long_tasks, std::move(task))
             : boost::asio::post(impl_->background, std::move(task));
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
