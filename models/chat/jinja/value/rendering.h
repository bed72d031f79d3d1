#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/chat/jinja/value/errors.h"

namespace minfer::jinja {

class Object;

/// The limits of one rendering. Templates come from model files and their input from requests; neither may exhaust time or memory.
struct Limits {
  int64_t max_steps = 10'000'000;       ///< expressions, statements, elements, allocations: below a second
  size_t max_bytes = size_t{64} << 20;  ///< of all values alive at a time, including the prompt
  int max_depth = 1000;                 ///< of nested evaluation: expressions, statements and macro calls
};

/// The state of one rendering, and its use of resources; throws TemplateError at a limit. Values, operators and filters find the rendering
/// by the thread they run on, so none can forget to charge it. Outside of any rendering (parsed templates, requests) nothing is charged.
class Rendering {
 public:
  Rendering(const Limits& limits, const std::tm& time)
      : now(time), limits_(limits), outer_(std::exchange(current_, this)) {}
  ~Rendering();
  Rendering(const Rendering&) = delete;
  Rendering& operator=(const Rendering&) = delete;

  /// The rendering in progress on this thread; null: there is none.
  static Rendering* current() { return current_; }

  static void step(size_t count = 1) {
    if (current_ == nullptr) return;
    current_->steps_ += static_cast<int64_t>(count);
    if (current_->steps_ > current_->limits_.max_steps)
      fail<TemplateError>("more than {} steps", current_->limits_.max_steps);
  }
  /// Charges a pass over `bytes` of text.
  static void scan(size_t bytes) { step(1 + bytes / 32); }
  /// Call before taking `count` times `bytes` that no value holds, or that a value is known to take later.
  static void require(size_t count, size_t bytes = 1) {
    size_t all = 0;
    const bool fits = !__builtin_mul_overflow(count, bytes, &all);
    if (current_ != nullptr && (!fits || all > current_->limits_.max_bytes - current_->bytes_))
      fail<TemplateError>("values of more than {} bytes", current_->limits_.max_bytes);
  }
  /// Call before `bytes` of memory are taken, and after they are freed. Taken memory is also written, so it counts as work.
  static void allocate(size_t bytes) {
    require(bytes);
    step(1 + bytes / 128);
    if (current_ != nullptr) current_->bytes_ += bytes;
  }
  static void release(size_t bytes) {
    if (current_ != nullptr) current_->bytes_ -= std::min(bytes, current_->bytes_);
  }

  /// Keeps an object that may refer to itself until the end, and then calls its release().
  static void keep(std::shared_ptr<Object> object) { current_->kept_.push_back(std::move(object)); }

  const std::tm now;          ///< the time for strftime_now
  bool printed_none = false;  ///< a None has been printed as the text "None"

  /// One level of nested evaluation, from construction to destruction.
  class Level {
   public:
    Level() {
      const int limit = current_->limits_.max_depth;
      if (current_->depth_ == limit) fail<TemplateError>("more than {} levels of nested evaluation", limit);
      ++current_->depth_;
    }
    ~Level() { --current_->depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
  };

 private:
  inline static thread_local Rendering* current_ = nullptr;

  Limits limits_;
  Rendering* outer_;
  int64_t steps_ = 0;
  size_t bytes_ = 0;
  int depth_ = 0;
  std::vector<std::shared_ptr<Object>> kept_;
};

/// Allocates the memory of values and charges it to the rendering that makes them.
template <class T>
struct Counted {
  using value_type = T;
  static constexpr size_t kOverhead = 16;  ///< of an allocation, bytes

  Counted() = default;
  template <class U>
  Counted(const Counted<U>&) {}  // NOLINT(google-explicit-constructor): as allocators convert
  T* allocate(size_t count) {
    Rendering::allocate(count * sizeof(T) + kOverhead);
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* memory, size_t count) {
    Rendering::release(count * sizeof(T) + kOverhead);
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
