#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "models/chat/jinja/value/object.h"

namespace minfer::jinja {

class Bound;

/// A filter, test, method or global function. Its subject is the value in front of `|` or `is`, or the method's object; None for a global.
struct Builtin {
  std::string_view name;
  std::string_view
      parameters[4];    ///< "_": cannot be given by name; "*" alone: the function reads all arguments itself
  size_t num_required;  ///< of the parameters, those without a default
  Value (*function)(const Value& subject, const Bound& given);

  /// Throws TemplateError that names the function if the arguments do not fit.
  Value operator()(const Value& subject, const Arguments& arguments) const;
};

/// The arguments of a call by the function's parameters, as Python binds them. Both outlive this.
class Bound {
 public:
  Bound(const Builtin& builtin, const Arguments& arguments);

  const Arguments& all;

  bool has(size_t i) const { return values_[i] != nullptr; }
  /// None if absent.
  const Value& operator[](size_t i) const;
  Value get(size_t i, Value absent) const { return has(i) ? *values_[i] : std::move(absent); }
  bool truth(size_t i) const { return (*this)[i].truth(); }
  int64_t integer(size_t i, int64_t absent) const;
  /// Nothing if absent or None.
  std::optional<int64_t> optional_integer(size_t i) const;
  /// A text; throws for other types.
  const Text& text(size_t i) const;
  Text text(size_t i, std::string_view absent) const { return has(i) ? text(i) : Text(absent); }

 private:
  [[noreturn]] void fail_type(size_t i, std::string_view expected) const;

  std::string_view function_;
  const Value* values_[4] = {};
};

inline void expect_none(std::string_view function, const Arguments& arguments) {
  Bound(Builtin{function, {}, 0, nullptr}, arguments);
}

/// Null if there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
/// A name that every template knows: range, namespace, dict, cycler, joiner, raise_exception, strftime_now. Nothing if there is none.
std::optional<Value> find_global(std::string_view name);
/// A method of a text, list or dict bound to its object; nothing if the type has no such method.
std::optional<Value> find_method(const Value& object, std::string_view name);

// The filters, grouped by the type they work on, and methods of texts.
std::span<const Builtin> text_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> text_methods();

}  // namespace minfer::jinja
