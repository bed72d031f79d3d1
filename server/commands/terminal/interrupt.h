#pragma once

#include <csignal>

namespace minfer {

/// While it lives, the first Ctrl-C (SIGINT) is noted instead of ending the program; a second one ends it.
/// One at a time. For commands that look between two steps of their work; the server, which waits for events,
/// has EventLoop::on_signals().
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  bool interrupted() const;

 private:
  struct sigaction previous_ {};
};

/// Ends the program as an unhandled Ctrl-C would, so that shells and scripts see what happened. For when what
/// there was to say has been said.
[[noreturn]] void end_as_interrupted();

}  // namespace minfer
