#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "models/chat/jinja/value/object.h"

namespace minfer::jinja {

/// The arguments of a call by the function's parameters, as Python binds them.
class Bound {
 public:
  /// The first `num_required` parameters have no default. A parameter named "" cannot be given by name.
  /// Throws TemplateError that names the function. `arguments` outlive this.
  Bound(std::string_view function, const Arguments& arguments,
        std::initializer_list<std::string_view> parameters, size_t num_required = 0);

  bool has(size_t i) const { return values_[i] != nullptr; }
  /// None if absent.
  const Value& operator[](size_t i) const;
  int64_t integer(size_t i, int64_t absent) const;
  /// Nothing if absent or None.
  std::optional<int64_t> optional_integer(size_t i) const;
  bool truth(size_t i, bool absent) const { return has(i) ? (*this)[i].truth() : absent; }
  /// A text; throws for other types.
  const Text& text(size_t i) const;

 private:
  [[noreturn]] void fail_type(size_t i, std::string_view expected) const;

  std::string_view function_;
  std::vector<const Value*> values_;
};

}  // namespace minfer::jinja
