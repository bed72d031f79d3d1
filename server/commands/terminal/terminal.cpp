#include "server/commands/terminal/terminal.h"

#include <cerrno>
#include <cstring>

#include <poll.h>
#include <unistd.h>

#include "kernels/error.h"

namespace minfer {

bool is_terminal(std::FILE* stream) {
  return isatty(fileno(stream)) == 1;
}

void print_output(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    fail("cannot write to standard output: {}", std::strerror(errno));
}

void print_notice(const std::string& text) {
  constexpr int kPatienceMs = 1'000;
  pollfd waiting{.fd = fileno(stderr), .events = POLLOUT, .revents = 0};
  if (::poll(&waiting, 1, kPatienceMs) == 1) std::fputs(text.c_str(), stderr);
}

}  // namespace minfer
