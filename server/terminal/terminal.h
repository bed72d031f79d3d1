#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace minfer {

/// True if a stream is a terminal: colours and progress lines go nowhere else.
bool is_terminal(std::FILE* stream);

/// Writes to standard output. Throws Error if standard output did not take all of it, now or at any time before.
void print_output(std::string_view text);

/// Writes a line or two to standard error; text that standard error does not take (closed, disk full, a pipe that nobody reads) is lost.
void print_notice(const std::string& text);

/// Shows a line on standard error instead of the one shown before; empty: none. Does nothing where standard error is no terminal.
void show_progress(const std::string& text);

/// While it lives, the first Ctrl-C (SIGINT) is noted instead of ending the program; a second one ends it. One at a time. For commands that
/// look between two steps of their work; the server, which waits for events, has EventLoop::on_signals().
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

/// Ends the program as an unhandled Ctrl-C would, so that shells and scripts see what happened. Call it after the last output.
[[noreturn]] void end_as_interrupted();

/// A load test's progress in one line of standard error, redrawn a few times a second at most and removed at
/// the end. Shows nothing where standard error is no terminal.
class ProgressBar {
 public:
  explicit ProgressBar(size_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(size_t done, int64_t output_tokens);

 private:
  size_t total_;
  int64_t begin_ns_;
  int64_t next_ns_ = 0;
};

/// All bytes of standard input. Throws Error if it cannot be read.
std::string read_standard_input();
/// All of a file's bytes. Throws FileError naming it.
std::string read_text_file(const std::string& path);

}  // namespace minfer
