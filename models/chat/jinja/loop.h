#pragma once

#include <functional>
#include <optional>

#include "models/chat/jinja/evaluation.h"

namespace minfer::jinja {

/// The variable `loop` of a for loop, which also steps it. Looks one element ahead, and through all of an
/// iterator without a length, only when the template asks for that.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  /// Renders the loop's body for an inner iterable, in a loop marked recursive.
  using Recurse = std::function<Value(const Value& iterable, int depth)>;

  Loop(Evaluation& evaluation, const Value& iterable, Recurse recurse, int depth);

  /// The next element, nothing at the end.
  std::optional<Value> advance(Evaluation& evaluation);
  /// After the last iteration: lets go of elements, which may refer to the loop.
  void finish();

  std::string_view type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(Evaluation& evaluation, std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Evaluation& evaluation, const Arguments& arguments) override;
  int depth() const override { return value_depth_; }

 private:
  int64_t num_elements(Evaluation& evaluation);
  const std::optional<Value>& peek(Evaluation& evaluation);
  bool changed(Evaluation& evaluation, const Arguments& arguments);

  std::shared_ptr<Iterator> iterator_;
  Recurse recurse_;
  int depth_;
  int value_depth_;
  int64_t index_ = -1;
  std::optional<int64_t> length_;
  std::optional<Value> before_, current_, after_;
  std::optional<Value> last_changed_;
  bool at_end_ = false;  // after_ was asked for, and there is none
  bool finished_ = false;
};

}  // namespace minfer::jinja
