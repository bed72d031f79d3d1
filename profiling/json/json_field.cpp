#include "profiling/json/json_field.h"

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace minfer {
namespace {

using simdjson::dom::element_type;

constexpr double kLeastNumber = 1e-9, kMostNumber = 1e15;
constexpr size_t kQuotedBytes = 60;  // of a wrong string, in an error

// A description of `value` for an error: numbers and booleans unchanged, else the type.
std::string shown(const simdjson::dom::element& value) {
  switch (value.type()) {
    case element_type::DOUBLE:
      return fmt::format("{}", value.get_double().value_unsafe());
    case element_type::ARRAY:
      return "array";
    case element_type::OBJECT:
      return "object";
    case element_type::STRING:
      return "string \"" +
             without_controls(std::string(value.get_string().value_unsafe().substr(0, kQuotedBytes))) + "\"";
    default:  // an integer, true, false or null
      return simdjson::minify(value);
  }
}

}  // namespace

void JsonField::start_object() const {
  if (!value_.is_object()) expected("an object");
  const simdjson::dom::object object = value_.get_object().value_unsafe();
  next_member_ = object.begin();
  end_members_ = object.end();
  is_started_ = true;
}

std::optional<simdjson::dom::element> JsonField::member(std::string_view key) const {
  if (!is_started_) start_object();
  const auto first = next_member_;
  const auto found_at = [&](const simdjson::dom::object::iterator& place) {
    next_member_ = place;
    ++next_member_;
    return place.value();
  };
  for (auto place = first; place != end_members_; ++place) {
    if (place.key_equals(key)) return found_at(place);
  }
  for (auto place = value_.get_object().value_unsafe().begin(); place != first; ++place) {
    if (place.key_equals(key)) return found_at(place);
  }
  return std::nullopt;
}

JsonField JsonField::operator[](std::string_view key) const {
  const auto found = member(key);
  if (!found) fail<FileError>("{}: has no field \"{}\"", path(), key);
  return {*found, *this, key, -1};
}

std::optional<JsonField> JsonField::find(std::string_view key) const {
  const auto found = member(key);
  if (!found) return std::nullopt;
  return JsonField(*found, *this, key, -1);
}

std::vector<std::string_view> JsonField::keys() const {
  if (!is_started_) start_object();
  std::vector<std::string_view> keys;
  const simdjson::dom::object object = value_.get_object().value_unsafe();
  for (const auto member : object)
    keys.push_back(member.key);
  return keys;
}

size_t JsonField::size() const {
  if (!value_.is_array()) expected("an array");
  return value_.get_array().value_unsafe().size();
}

JsonField JsonField::operator[](size_t index) const {
  if (!is_started_ || index < next_index_) {
    next_element_ = value_.get_array().value_unsafe().begin();
    next_index_ = 0;
    is_started_ = true;
  }
  for (; next_index_ < index; ++next_index_)
    ++next_element_;
  const simdjson::dom::element found = *next_element_;
  ++next_element_;
  ++next_index_;
  return {found, *this, {}, static_cast<int64_t>(index)};
}

double JsonField::number() const {
  const auto found = value_.get_double();  // of integers too
  const double number = found.error() == simdjson::SUCCESS ? found.value_unsafe() : -1.0;
  if (number != 0.0 && !(number >= kLeastNumber && number <= kMostNumber))
    expected("a number that is 0, or from 1e-9 to 1e15");
  return number;
}

double JsonField::saved_share() const {
  const auto found = value_.get_double();
  if (found.error() != simdjson::SUCCESS || !(found.value_unsafe() >= -1e9 && found.value_unsafe() <= 1.0))
    expected("a number from -1e9 to 1");
  return found.value_unsafe();
}

int64_t JsonField::checked_integer(int64_t least, int64_t most) const {
  const auto number = value_.get_int64();  // no error: an integer that fits
  if (number.error() != simdjson::SUCCESS || number.value_unsafe() < least || number.value_unsafe() > most)
    expected(fmt::format("an integer from {} to {}", least, most));
  return number.value_unsafe();
}

bool JsonField::boolean() const {
  const auto boolean = value_.get_bool();
  if (boolean.error() != simdjson::SUCCESS) expected("true or false");
  return boolean.value_unsafe();
}

std::string_view JsonField::raw_text() const {
  const auto text = value_.get_string();
  if (text.error() != simdjson::SUCCESS) expected("a string");
  return text.value_unsafe();
}

std::string JsonField::text() const {
  return without_controls(std::string(raw_text()));
}

void JsonField::expected(std::string_view what) const {
  fail<FileError>("{}: expected {}, found {}", path(), what, shown(value_));
}

std::string JsonField::path() const {
  if (parent_ == nullptr) return std::string(name_);
  if (index_ >= 0) return fmt::format("{}[{}]", parent_->path(), index_);
  return parent_->path() + (parent_->parent_ == nullptr ? ": " : ".") + std::string(name_);
}

std::string without_controls(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // C1 controls, U+0080 to U+009F, are C2 80 to C2 9F in UTF-8.
    const bool c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c1) text.replace(i, 2, "?");
    if (byte < 0x20 || byte == 0x7F) text[i] = '?';
  }
  return text;
}

}  // namespace minfer
