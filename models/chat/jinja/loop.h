#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "models/chat/jinja/value/object.h"

namespace minfer::jinja {

/// The variable `loop` of a for loop, which also steps it. Looks one element ahead, and through all of an
/// iterator without a length, only when the template asks for that.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  /// Renders the loop's body for an inner iterable, in a loop marked recursive.
  using Recurse = std::function<Value(const Value& iterable, int depth)>;

  Loop(const Value& iterable, Recurse recurse, int depth)
      : iterator_(iterate(iterable)),
        recurse_(std::move(recurse)),
        depth_(depth),
        value_depth_(iterable.depth() + 1) {
    if (const std::optional<size_t> size = length_of(iterable)) length_ = static_cast<int64_t>(*size);
  }

  /// The next element, nothing at the end.
  std::optional<Value> advance() {
    std::optional<Value> item;
    if (after_) {
      item = std::exchange(after_, std::nullopt);
    } else if (!at_end_) {
      item = iterator_->next();
    }
    if (!item) return std::nullopt;
    ++index_;
    before_ = std::exchange(current_, item);
    return item;
  }

  /// After the last iteration: releases the elements, which may refer to the loop.
  void finish() {
    before_ = current_ = after_ = last_changed_ = std::nullopt;
    at_end_ = finished_ = true;
    recurse_ = nullptr;
  }

  std::string_view type_name() const override { return "LoopContext"; }

  std::optional<Value> attribute(std::string_view name) override {
    if (name == "index0") return Value(index_);
    if (name == "index") return Value(index_ + 1);
    if (name == "first") return Value(index_ == 0);
    if (name == "last") return Value(!peek().has_value());
    if (name == "length") return Value(num_elements());
    if (name == "revindex0") return Value(num_elements() - index_ - 1);
    if (name == "revindex") return Value(num_elements() - index_);
    if (name == "depth0") return Value(static_cast<int64_t>(depth_));
    if (name == "depth") return Value(static_cast<int64_t>(depth_) + 1);
    if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
    if (name == "nextitem") {
      const std::optional<Value>& next = peek();
      return next ? *next : Value::undefined("there is no next item");
    }
    if (name == "cycle") {
      return make_function(name, [self = shared_from_this()](const Arguments& arguments) {
        if (arguments.positional.empty())
          fail<TemplateError>("loop.cycle() without arguments, expected some");
        return arguments.positional[static_cast<size_t>(self->index_) % arguments.positional.size()];
      });
    }
    if (name == "changed") {
      return make_function(name, [self = shared_from_this()](const Arguments& arguments) {
        return Value(self->changed(make_tuple(arguments.positional)));
      });
    }
    return std::nullopt;
  }

  bool callable() const override { return true; }

  Value call(const Arguments& arguments) override {
    if (!recurse_) fail<TemplateError>("loop() called in a loop that is not marked 'recursive'");
    if (arguments.positional.size() != 1 || !arguments.named.empty())
      fail<TemplateError>("loop() with {} arguments, expected 1",
                          arguments.positional.size() + arguments.named.size());
    return recurse_(arguments.positional.front(), depth_ + 1);
  }

  int depth() const override { return value_depth_; }

 private:
  int64_t num_elements() {
    if (!length_) {
      Items rest = to_items(Value(iterator_));
      length_ = static_cast<int64_t>(rest.size()) + index_ + 1 + (after_ ? 1 : 0);
      iterator_ = iterate(make_list(std::move(rest)));
    }
    return *length_;
  }

  const std::optional<Value>& peek() {
    if (!after_ && !at_end_) {
      after_ = iterator_->next();
      at_end_ = !after_;
    }
    return after_;
  }

  bool changed(Value now) {
    if (last_changed_ && equals(*last_changed_, now)) return false;
    if (!finished_) last_changed_ = std::move(now);
    return true;
  }

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
