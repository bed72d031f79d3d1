#include "models/chat/jinja/loop.h"

#include <utility>

namespace minfer::jinja {

Loop::Loop(Evaluation& evaluation, const Value& iterable, Recurse recurse, int depth)
    : iterator_(iterate(iterable)),
      recurse_(std::move(recurse)),
      depth_(depth),
      value_depth_(iterable.depth() + 1) {
  if (const std::optional<size_t> size = length_of(evaluation.budget, iterable))
    length_ = static_cast<int64_t>(*size);
}

std::optional<Value> Loop::advance(Evaluation& evaluation) {
  std::optional<Value> item;
  if (after_) {
    item = std::exchange(after_, std::nullopt);
  } else if (!at_end_) {
    item = iterator_->next(evaluation);
  }
  if (!item) return std::nullopt;
  ++index_;
  before_ = std::exchange(current_, item);
  return item;
}

void Loop::finish() {
  before_ = current_ = after_ = last_changed_ = std::nullopt;
  at_end_ = finished_ = true;
  recurse_ = nullptr;
}

const std::optional<Value>& Loop::peek(Evaluation& evaluation) {
  if (!after_ && !at_end_) {
    after_ = iterator_->next(evaluation);
    at_end_ = !after_;
  }
  return after_;
}

int64_t Loop::num_elements(Evaluation& evaluation) {
  if (!length_) {
    Items rest = to_items(evaluation, Value(std::static_pointer_cast<Object>(iterator_)));
    length_ = static_cast<int64_t>(rest.size()) + index_ + 1 + (after_ ? 1 : 0);
    iterator_ = iterate(make_list(std::move(rest)));
  }
  return *length_;
}

bool Loop::changed(Evaluation& evaluation, const Arguments& arguments) {
  Value now = make_tuple(arguments.positional);
  if (last_changed_ && equals(evaluation.budget, *last_changed_, now)) return false;
  if (!finished_) last_changed_ = std::move(now);
  return true;
}

std::optional<Value> Loop::attribute(Evaluation& evaluation, std::string_view name) {
  if (name == "index0") return Value(index_);
  if (name == "index") return Value(index_ + 1);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(!peek(evaluation).has_value());
  if (name == "length") return Value(num_elements(evaluation));
  if (name == "revindex0") return Value(num_elements(evaluation) - index_ - 1);
  if (name == "revindex") return Value(num_elements(evaluation) - index_);
  if (name == "depth0") return Value(static_cast<int64_t>(depth_));
  if (name == "depth") return Value(static_cast<int64_t>(depth_) + 1);
  if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
  if (name == "nextitem") {
    const std::optional<Value>& next = peek(evaluation);
    return next ? *next : Value::undefined("there is no next item");
  }
  if (name == "cycle") {
    return make_function("cycle", [self = shared_from_this()](Evaluation&, const Arguments& arguments) {
      if (arguments.positional.empty()) fail<TemplateError>("loop.cycle() without arguments, expected some");
      return arguments.positional[static_cast<size_t>(self->index_) % arguments.positional.size()];
    });
  }
  if (name == "changed") {
    return make_function("changed",
                         [self = shared_from_this()](Evaluation& inner, const Arguments& arguments) {
                           return Value(self->changed(inner, arguments));
                         });
  }
  return std::nullopt;
}

Value Loop::call(Evaluation&, const Arguments& arguments) {
  if (!recurse_) fail<TemplateError>("loop() called in a loop that is not marked 'recursive'");
  if (arguments.positional.size() != 1 || !arguments.named.empty())
    fail<TemplateError>("loop() with {} arguments, expected 1",
                        arguments.positional.size() + arguments.named.size());
  return recurse_(arguments.positional.front(), depth_ + 1);
}

}  // namespace minfer::jinja
