#include "profiling/json/json_field.h"

#include <cmath>

#include "kernels/error.h"

namespace minfer {
namespace {

constexpr size_t kQuotedBytes = 60;  // of a wrong string, in an error

}  // namespace

JsonField JsonField::operator[](std::string_view key) const {
  const nlohmann::json& members = object();
  const auto found = members.find(key);
  if (found == members.end()) fail<FileError>("{}: has no field \"{}\"", path(), key);
  return {*found, *this, key, -1};
}

std::optional<JsonField> JsonField::find(std::string_view key) const {
  const nlohmann::json& members = object();
  const auto found = members.find(key);
  if (found == members.end()) return std::nullopt;
  return JsonField(*found, *this, key, -1);
}

size_t JsonField::size() const {
  if (!value_.is_array()) expected("an array");
  return value_.size();
}

JsonField JsonField::operator[](size_t index) const {
  return {value_[index], *this, {}, static_cast<int64_t>(index)};
}

const nlohmann::json& JsonField::object() const {
  if (!value_.is_object()) expected("an object");
  return value_;
}

double JsonField::number() const {
  if (!value_.is_number()) expected("a number of at least 0");
  const double number = value_.get<double>();
  if (!std::isfinite(number) || number < 0.0) expected("a number of at least 0");
  return number;
}

int64_t JsonField::checked_integer(int64_t least, int64_t most) const {
  const std::string range = fmt::format("an integer from {} to {}", least, most);
  if (!value_.is_number_integer()) expected(range);
  if (value_.is_number_unsigned() && value_.get<uint64_t>() > static_cast<uint64_t>(most)) expected(range);
  const auto number = value_.get<int64_t>();
  if (number < least || number > most) expected(range);
  return number;
}

bool JsonField::boolean() const {
  if (!value_.is_boolean()) expected("true or false");
  return value_.get<bool>();
}

std::string JsonField::text() const {
  if (!value_.is_string()) expected("a string");
  return printable(value_.get<std::string>());
}

void JsonField::expected(std::string_view what) const {
  std::string found = value_.type_name();
  if (value_.is_number() || value_.is_boolean()) found = value_.dump();
  if (value_.is_string())
    found += " \"" + printable(value_.get<std::string>().substr(0, kQuotedBytes)) + "\"";
  fail<FileError>("{}: expected {}, found {}", path(), what, found);
}

std::string JsonField::path() const {
  if (parent_ == nullptr) return std::string(name_);
  if (index_ >= 0) return fmt::format("{}[{}]", parent_->path(), index_);
  return parent_->path() + (parent_->parent_ == nullptr ? ": " : ".") + std::string(name_);
}

std::string printable(std::string text) {
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
