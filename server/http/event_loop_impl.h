#pragma once

#include <optional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>

#include "server/http/event_loop.h"

namespace minfer {

struct EventLoop::Impl {
  explicit Impl(int background_threads)
      : signals(context), background(static_cast<size_t>(background_threads)) {}

  boost::asio::io_context context{1};  ///< one thread runs it: no locking of handlers
  boost::asio::signal_set signals;
  std::function<void(int)> on_signal;
  boost::asio::thread_pool background;
  boost::asio::thread_pool apart{1};
  boost::asio::strand<boost::asio::thread_pool::executor_type> long_tasks{background.get_executor()};
};

}  // namespace minfer
