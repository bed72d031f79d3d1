#include "server/tune/child_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"

namespace minfer {
namespace {

constexpr size_t kMostKept = size_t{16} << 20;

struct Pipe {
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("a pipe cannot be opened: {}", std::strerror(errno));
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(size_t end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
  std::array<int, 2> ends{-1, -1};
};

/// Appends the available bytes. Returns false at the end of the stream.
bool read_some(int descriptor, std::string& text) {
  std::array<char, 65536> bytes;
  const ssize_t count = read(descriptor, bytes.data(), bytes.size());
  if (count <= 0) return count < 0 && errno == EINTR;
  text.append(bytes.data(), std::min(static_cast<size_t>(count), kMostKept - text.size()));
  return true;
}

/// In the child: between fork and exec, only what a signal handler may do is allowed.
[[noreturn]] void become(char* const* arguments, int output, int errors) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  execv(arguments[0], arguments);
  _exit(127);
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& arguments, double timeout_s) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  Pipe output, errors;
  const pid_t child = fork();
  if (child < 0) fail("{}: cannot be started: {}", arguments.front(), std::strerror(errno));
  if (child == 0) become(pointers.data(), output.ends[1], errors.ends[1]);
  output.close_end(1);
  errors.close_end(1);
  ChildResult result;
  const int64_t end_ns = now_ns() + static_cast<int64_t>(timeout_s * 1e9);
  while (output.ends[0] >= 0 || errors.ends[0] >= 0) {
    const int64_t left_ms = (end_ns - now_ns()) / 1'000'000;
    if (left_ms <= 0 && !result.timed_out) {
      result.timed_out = true;
      kill(child, SIGKILL);
    }
    std::array<pollfd, 2> streams{pollfd{output.ends[0], POLLIN, 0}, pollfd{errors.ends[0], POLLIN, 0}};
    if (poll(streams.data(), streams.size(), result.timed_out ? -1 : static_cast<int>(left_ms) + 1) <= 0)
      continue;
    if (streams[0].revents != 0 && !read_some(output.ends[0], result.output)) output.close_end(0);
    if (streams[1].revents != 0 && !read_some(errors.ends[0], result.errors)) errors.close_end(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace minfer
