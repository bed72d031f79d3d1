#include "models/chat/jinja/builtins/arguments.h"

#include <algorithm>

namespace minfer::jinja {

Bound::Bound(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> parameters, size_t num_required)
    : function_(function), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > parameters.size()) {
    fail<TemplateError>("{}() with {} arguments, expected at most {}", function, arguments.positional.size(),
                        parameters.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* found = std::ranges::find(parameters, std::string_view(name));
    if (name.empty() || found == parameters.end())
      fail<TemplateError>("{}() has no argument named '{}'", function, name);
    const Value*& slot = values_[static_cast<size_t>(found - parameters.begin())];
    if (slot != nullptr) fail<TemplateError>("{}(): argument '{}' is given twice", function, name);
    slot = &value;
  }
  for (size_t i = 0; i < num_required; ++i)
    if (values_[i] == nullptr)
      fail<TemplateError>("{}() with too few arguments, expected {} at least", function, num_required);
}

const Value& Bound::operator[](size_t i) const {
  static const Value none;
  return has(i) ? *values_[i] : none;
}

int64_t Bound::integer(size_t i, int64_t absent) const {
  if (!has(i)) return absent;
  const auto value = (*this)[i].integer();
  if (!value) fail_type(i, "an int");
  return *value;
}

std::optional<int64_t> Bound::optional_integer(size_t i) const {
  if ((*this)[i].is_none()) return std::nullopt;
  return integer(i, 0);
}

const Text& Bound::text(size_t i) const {
  const Text* value = (*this)[i].text();
  if (value == nullptr) fail_type(i, "a text");
  return *value;
}

void Bound::fail_type(size_t i, std::string_view expected) const {
  (*this)[i].require_defined();
  fail<TemplateError>("{}(): argument {} is a '{}', expected {}", function_, i + 1, (*this)[i].type_name(),
                      expected);
}

}  // namespace minfer::jinja
