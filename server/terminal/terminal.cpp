#include "server/terminal/terminal.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"

namespace minfer {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;  // the one thing a signal handler may set

constexpr size_t kWidth = 30;
constexpr int64_t kPeriodNs = 200'000'000;

}  // namespace

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

void show_progress(const std::string& text) {
  if (is_terminal(stderr)) print_notice("\r\x1b[K" + text);
}

InterruptWatch::InterruptWatch() {
  interrupt_seen = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupt_seen = 1; };
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

ProgressBar::ProgressBar(size_t total) : total_(total), begin_ns_(now_ns()) {}

ProgressBar::~ProgressBar() {
  show_progress("");
}

void ProgressBar::update(size_t done, int64_t output_tokens) {
  const int64_t time_ns = now_ns();
  if (time_ns < next_ns_) return;
  next_ns_ = time_ns + kPeriodNs;
  const size_t filled = total_ == 0 ? kWidth : kWidth * done / total_;
  const double seconds = static_cast<double>(time_ns - begin_ns_) * 1e-9;
  show_progress(fmt::format("[{:#>{}}{:.>{}}] {}/{} requests  {:.0f} tokens/s", "", filled, "",
                            kWidth - filled, done, total_, static_cast<double>(output_tokens) / seconds));
}

std::string read_standard_input() {
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (std::ferror(stdin) != 0) fail("standard input: cannot be read");
  return text;
}

std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) fail<FileError>("cannot read {}", path);
  return text;
}

}  // namespace minfer
