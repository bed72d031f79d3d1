#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <vector>

#include "models/chat/jinja/value/object.h"

namespace minfer::jinja {

/// The state of one rendering that operators, filters and functions share. Used by one thread.
class Evaluation {
 public:
  Evaluation(const Limits& limits, const std::tm& time) : budget(limits), now(time) {}
  ~Evaluation() {
    for (const std::shared_ptr<Object>& object : kept_)
      object->release();
  }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

  /// Keeps an object that may come to refer to itself until the end, and takes it apart then.
  template <class T>
  std::shared_ptr<T> keep(std::shared_ptr<T> object) {
    budget.allocate(sizeof(T) + sizeof(std::shared_ptr<Object>));
    kept_.push_back(object);
    return object;
  }

  Budget budget;
  std::tm now;  ///< what strftime_now tells

 private:
  std::vector<std::shared_ptr<Object>> kept_;
};

/// Makes a text piece by piece, charging its bytes before they are taken.
class TextWriter {
 public:
  explicit TextWriter(Budget& budget) : budget_(budget) {}
  void append(std::string_view bytes, Origin origin = Origin::source) {
    budget_.allocate(bytes.size());
    text_.append(bytes, origin);
  }
  void append(const Text& text) { append(text, 0, text.size()); }
  void append(const Text& text, size_t begin, size_t size) {
    budget_.allocate(size);
    text_.append(text, begin, size);
  }
  /// `text` `count` times. Throws before memory is taken if that is too much.
  void repeat(const Text& text, size_t count) {
    if (text.empty()) return;
    budget_.allocate(count > SIZE_MAX / text.size() ? SIZE_MAX : count * text.size());
    for (size_t i = 0; i < count; ++i)
      text_.append(text);
  }
  size_t size() const { return text_.size(); }
  const Text& text() const { return text_; }
  Text take() { return std::move(text_); }

 private:
  Budget& budget_;
  Text text_;
};

}  // namespace minfer::jinja
