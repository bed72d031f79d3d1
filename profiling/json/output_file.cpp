#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "profiling/json/profile_writer.h"

namespace minfer {
namespace {

int open_for_writing(const std::filesystem::path& path) {
  int fd = -1;
  do {
    fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0)
    fail<FileError>("profile file {}: cannot open for writing: {}", path.string(), std::strerror(errno));
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path)
    : path_(path.string()), fd_(open_for_writing(path)) {}

OutputFile::~OutputFile() {
  ::close(fd_);
}

std::optional<std::string> OutputFile::write(std::string_view bytes, const std::stop_token& stop,
                                             std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> deadline;
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    if (written < 0 && errno != EAGAIN && errno != EINTR) {
      return fmt::format("profile file {}: cannot write: {}", path_, std::strerror(errno));
    }
    if (stop.stop_requested() && !deadline) deadline = Clock::now() + timeout;
    if (deadline && Clock::now() >= *deadline) {
      return fmt::format("profile file {}: not read for {} ms, gave up", path_, timeout.count());
    }
    pollfd descriptor{fd_, POLLOUT, 0};
    poll(&descriptor, 1, 50);  // for room in a pipe; regular files always have it
  }
  return std::nullopt;
}

}  // namespace minfer
