#pragma once

#include <cstddef>
#include <cstdint>

#include "models/chat/jinja/errors.h"

namespace minfer::jinja {

/// What one rendering may use. Templates come with model files and their input from requests: neither may
/// take the server's time or memory.
struct Limits {
  int64_t max_steps = 20'000'000;      ///< expressions, statements and elements visited: about two seconds
  size_t max_bytes = size_t{1} << 30;  ///< of all values made, freed or not
  size_t max_output_bytes = size_t{64} << 20;  ///< of the rendered prompt
  int max_depth = 1000;  ///< of nested evaluation: expressions, statements and macro calls
};

/// Counts what a rendering has used; throws TemplateError at the limit.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  void step(size_t count = 1) {
    steps_ += static_cast<int64_t>(count);
    if (steps_ > limits_.max_steps) fail<TemplateError>("more than {} steps", limits_.max_steps);
  }
  /// A pass over `bytes` of text.
  void scan(size_t bytes) { step(1 + bytes / 256); }
  /// Before memory of `bytes` is taken.
  void allocate(size_t bytes) {
    if (bytes > limits_.max_bytes - bytes_)
      fail<TemplateError>("values of more than {} bytes", limits_.max_bytes);
    bytes_ += bytes;
  }
  const Limits& limits() const { return limits_; }

  /// One level of nesting, from construction to destruction.
  class Level {
   public:
    explicit Level(Budget& budget) : budget_(budget) {
      if (budget_.depth_ == budget_.limits_.max_depth)
        fail<TemplateError>("more than {} levels of nested evaluation", budget_.limits_.max_depth);
      ++budget_.depth_;
    }
    ~Level() { --budget_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Budget& budget_;
  };

 private:
  Limits limits_;
  int64_t steps_ = 0;
  size_t bytes_ = 0;
  int depth_ = 0;
};

}  // namespace minfer::jinja
