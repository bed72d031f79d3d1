#include "server/commands/terminal/interrupt.h"

#include <cstdio>
#include <cstdlib>

namespace minfer {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;  // the one thing a signal handler may set

void note_interrupt(int) {
  interrupt_seen = 1;
}

}  // namespace

InterruptWatch::InterruptWatch() {
  interrupt_seen = 0;
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the next one does what it does by default
  sigaction(SIGINT, &action, &previous_);
}

InterruptWatch::~InterruptWatch() {
  sigaction(SIGINT, &previous_, nullptr);
}

bool InterruptWatch::interrupted() const {
  return interrupt_seen != 0;
}

void end_as_interrupted() {
  std::fflush(nullptr);
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
  std::abort();  // not reached: SIGINT was blocked
}

}  // namespace minfer
