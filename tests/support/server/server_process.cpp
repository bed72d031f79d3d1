#include "tests/support/server/server_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/server/raw_client.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;

/// A port that nobody has at the moment.
uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool found = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(fd);
  if (!found) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

}  // namespace

ServerProcess::ServerProcess(const std::string& binary, std::vector<std::string> arguments, int err_fd)
    : port_(free_port()), log_path_(directory_.path() / "stderr") {
  arguments.insert(arguments.begin(), {binary, "serve", "--port", std::to_string(port_)});
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
  for (int i = 0; i < 3000; ++i) {
    if (wait(0ms)) break;
    try {
      if (RawClient(port_).request("GET", "/health").status == 200) return port_;
    } catch (const std::runtime_error&) {  // nobody listens yet
    }
    std::this_thread::sleep_for(10ms);
  }
  throw std::runtime_error("minfer serve does not answer: " + log());
}

void ServerProcess::signal(int number) const {
  if (!status_) ::kill(pid_, number);
}

std::optional<int> ServerProcess::wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!status_) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = status;
    } else if (std::chrono::steady_clock::now() >= deadline) {
      break;
    } else {
      std::this_thread::sleep_for(2ms);
    }
  }
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

size_t ServerProcess::num_descriptors() const {
  const std::filesystem::directory_iterator entries(fmt::format("/proc/{}/fd", pid_));
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

}  // namespace minfer
