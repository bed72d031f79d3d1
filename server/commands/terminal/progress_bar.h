#pragma once

#include <cstddef>
#include <cstdint>

namespace minfer {

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
  bool shown_;
  int64_t begin_ns_;
  int64_t next_ns_ = 0;
};

}  // namespace minfer
