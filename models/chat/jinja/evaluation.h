#pragma once

#include <ctime>
#include <memory>

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

  /// Keeps an object that may refer to itself until the end, and then calls its release().
  template <class T>
  std::shared_ptr<T> keep(std::shared_ptr<T> object) {
    kept_.push_back(object);
    return object;
  }

  Budget budget;
  std::tm now;  ///< the time for strftime_now

 private:
  Vector<std::shared_ptr<Object>> kept_;
};

}  // namespace minfer::jinja
