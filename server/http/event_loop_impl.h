#pragma once

#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/strand.hpp>

#include "server/http/event_loop.h"

namespace minfer {

struct EventLoop::Impl {
  /// Throws Error if the system refuses a thread. boost::asio::thread_pool would wait forever for the threads it has.
  explicit Impl(int num_background_threads);
  ~Impl() { end_background_work(); }
  void end_background_work() {
    apart.stop();
    background.stop();
    background_threads.clear();  // joins
  }

  boost::asio::io_context context{1};  ///< one thread runs it: no locking of handlers
  boost::asio::signal_set signals{context};
  std::function<void(int)> on_signal;
  boost::asio::io_context background;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> background_stays{
      background.get_executor()};
  boost::asio::strand<boost::asio::io_context::executor_type> long_tasks{background.get_executor()};
  boost::asio::io_context apart;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> apart_stays{apart.get_executor()};
  std::vector<std::jthread> background_threads;  ///< the last one runs `apart`
};

}  // namespace minfer
