#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/chat/jinja/errors.h"

namespace minfer::jinja {

/// The limits of one rendering. Templates come from model files and their input from requests; neither may exhaust time or memory.
struct Limits {
  int64_t max_steps = 10'000'000;       ///< expressions, statements, elements, allocations: below a second
  size_t max_bytes = size_t{64} << 20;  ///< of all values alive at a time, including the prompt
  int max_depth = 1000;                 ///< of nested evaluation: expressions, statements and macro calls
};

/// Counts the resources of a rendering; throws TemplateError at a limit. Values find the budget of their
/// rendering by the thread they are made on (Counted), so no filter or operator can forget to charge them.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), outer_(std::exchange(current_, this)) {}
  ~Budget() { current_ = outer_; }
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// The budget of the rendering in progress on this thread; null: there is none.
  static Budget* current() { return current_; }
  /// Charges `count` steps to it.
  static void charge(size_t count) {
    if (current_ != nullptr) current_->step(count);
  }

  void step(size_t count = 1) {
    steps_ += static_cast<int64_t>(count);
    if (steps_ > limits_.max_steps) fail<TemplateError>("more than {} steps", limits_.max_steps);
  }
  /// Charges a pass over `bytes` of text.
  void scan(size_t bytes) { step(1 + bytes / 32); }
  /// Call before taking `bytes` that no value holds, or that a value is known to take later.
  void require(size_t bytes) const {
    if (bytes > limits_.max_bytes - bytes_)
      fail<TemplateError>("values of more than {} bytes", limits_.max_bytes);
  }
  /// Call before `bytes` of memory are taken, and after they are freed. Taken memory is also written, so it counts as work.
  void allocate(size_t bytes) {
    require(bytes);
    step(1 + bytes / 128);
    bytes_ += bytes;
  }
  void release(size_t bytes) { bytes_ -= std::min(bytes, bytes_); }

  /// A None has been printed as the text "None".
  bool printed_none = false;

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
  inline static thread_local Budget* current_ = nullptr;

  Limits limits_;
  Budget* outer_;
  int64_t steps_ = 0;
  size_t bytes_ = 0;
  int depth_ = 0;
};

/// Allocates the memory of values and charges it to the rendering that makes them. Values made outside of any
/// rendering (parsed templates, requests) cost nothing and outlive the renderings that read them.
template <class T>
struct Counted {
  using value_type = T;
  static constexpr size_t kOverhead = 16;  ///< of an allocation, bytes

  Counted() = default;
  template <class U>
  Counted(const Counted<U>&) {}  // NOLINT(google-explicit-constructor): as allocators convert
  T* allocate(size_t count) {
    if (Budget* budget = Budget::current()) budget->allocate(count * sizeof(T) + kOverhead);
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* memory, size_t count) {
    if (Budget* budget = Budget::current()) budget->release(count * sizeof(T) + kOverhead);
    std::allocator<T>().deallocate(memory, count);
  }
  friend bool operator==(const Counted&, const Counted&) { return true; }
};

template <class T>
using Vector = std::vector<T, Counted<T>>;
using String = std::basic_string<char, std::char_traits<char>, Counted<char>>;

template <class T, class... Arguments>
std::shared_ptr<T> make_counted(Arguments&&... arguments) {
  return std::allocate_shared<T>(Counted<char>(), std::forward<Arguments>(arguments)...);
}

}  // namespace minfer::jinja
