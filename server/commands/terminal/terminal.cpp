#include "server/commands/terminal/terminal.h"

#include <poll.h>
#include <unistd.h>

#include "kernels/error.h"

namespace minfer {

bool is_terminal(std::FILE* stream) {
  return isatty(fileno(stream)) == 1;
}

void print_output(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) fail("cannot write to standard output");
}

void print_notice(const std::string& text) {
  constexpr int kPatienceMs = 1'000;
  pollfd waiting{.fd = fileno(stderr), .events = POLLOUT, .revents = 0};
  if (::poll(&waiting, 1, kPatienceMs) == 1) std::fputs(text.c_str(), stderr);
}

}  // namespace minfer
