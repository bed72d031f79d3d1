#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "models/chat/jinja/builtins/functions.h"

namespace minfer::jinja {

using FilterEntries = std::vector<std::pair<std::string_view, Filter>>;

// The filters, grouped by the type they work on.
FilterEntries text_filters();
FilterEntries number_filters();
FilterEntries sequence_filters();
FilterEntries selection_filters();

/// Reads the attribute of a value that a filter's argument names: "a.b" is b of a, digits are positions. None: the value itself.
class AttributePath {
 public:
  /// Throws TemplateError unless `attribute` is a text, an int or None.
  explicit AttributePath(const Value& attribute);
  /// An undefined value on the path becomes `absent`, unless that is None.
  Value read(Value value, const Value& absent = Value()) const;

 private:
  Items parts_;
};

}  // namespace minfer::jinja
