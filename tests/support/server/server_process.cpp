#include "tests/support/server/server_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/server/raw_client.h"

namespace minfer {

using namespace std::chrono_literals;

ServerProcess::ServerProcess(const std::string& binary, std::vector<std::string> arguments, int err_fd)
    : log_path_(directory_.path() / "stderr") {
  arguments.insert(arguments.begin(), {binary, "serve", "--port", "0"});
  std::vector<char*> argv;
  for (std::string& argument : arguments)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int log_fd = ::open(log_path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ::setenv("MINFER_CEILINGS", "skip", 1);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(err_fd >= 0 ? err_fd : log_fd, STDERR_FILENO);
    ::execv(binary.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(log_fd);
  if (pid_ < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
}

ServerProcess::~ServerProcess() {
  if (status_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

uint16_t ServerProcess::wait_until_serving() {
  uint16_t port = 0;
  const bool listens = test::wait_until([&] { return has_ended() || (port = listening_port()) != 0; });
  if (listens && port != 0 && RawClient(port).request("GET", "/health").status == 200) return port;
  throw std::runtime_error("minfer serve does not answer: " + log());
}

/// The port that the process listens on, from the kernel: its log may go to a place that cannot be read. 0: none yet.
uint16_t ServerProcess::listening_port() const {
  std::set<std::string> sockets;  // inode numbers
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid_), ignored)) {
    const std::string target = std::filesystem::read_symlink(entry, ignored).string();
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  std::ifstream table(fmt::format("/proc/{}/net/tcp", pid_));
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string number, local, remote, state, skipped, inode;
    fields >> number >> local >> remote >> state;
    for (int i = 0; i < 5; ++i)
      fields >> skipped;
    fields >> inode;
    constexpr const char* kListening = "0A";
    if (state == kListening && sockets.contains(inode))
      return static_cast<uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16));
  }
  return 0;
}

void ServerProcess::signal(int number) const {
  if (!status_) ::kill(pid_, number);
}

std::optional<int> ServerProcess::wait(std::chrono::milliseconds patience) {
  const auto ended = [this] {
    int status = 0;
    if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    return status_.has_value();
  };
  static_cast<void>(test::wait_until(ended, patience));
  return status_;
}

std::string ServerProcess::log() const {
  std::ifstream file(log_path_);
  return {std::istreambuf_iterator<char>(file), {}};
}

int64_t ServerProcess::resident_bytes() const {
  std::ifstream file(fmt::format("/proc/{}/statm", pid_));
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int64_t ServerProcess::peak_bytes() const {
  std::ifstream file(fmt::format("/proc/{}/status", pid_));
  for (std::string word; file >> word;) {
    int64_t kib = 0;
    if (word == "VmHWM:" && file >> kib) return kib * 1024;
  }
  return -1;
}

size_t ServerProcess::num_descriptors() const {
  const std::filesystem::directory_iterator entries(fmt::format("/proc/{}/fd", pid_));
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

}  // namespace minfer
