#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace minfer {

/// A value in an untrusted JSON document together with the way to it, so that an error says where it is:
/// `run.jsonl:12: ops[3].us: expected a number of at least 0, found string`. Points at its parent, so it
/// lives shorter. All getters throw FileError.
class JsonField {
 public:
  /// The whole document, called `place` in errors.
  JsonField(const nlohmann::json& value, std::string_view place) : value_(value), name_(place) {}

  JsonField operator[](std::string_view key) const;           ///< of an object; has to be there
  std::optional<JsonField> find(std::string_view key) const;  ///< of an object
  size_t size() const;                                        ///< of an array
  JsonField operator[](size_t index) const;                   ///< of an array
  const nlohmann::json& object() const;

  double number() const;  ///< finite and at least 0
  template <class Integer>
  Integer integer(Integer least = 0) const {
    return static_cast<Integer>(
        checked_integer(least, static_cast<int64_t>(std::numeric_limits<Integer>::max())));
  }
  bool boolean() const;
  std::string text() const;  ///< control characters replaced by '?'

  [[noreturn]] void expected(std::string_view what) const;

 private:
  JsonField(const nlohmann::json& value, const JsonField& parent, std::string_view name, int64_t index)
      : value_(value), parent_(&parent), name_(name), index_(index) {}
  int64_t checked_integer(int64_t least, int64_t most) const;
  std::string path() const;

  const nlohmann::json& value_;
  const JsonField* parent_ = nullptr;
  std::string_view name_;
  int64_t index_ = -1;
};

/// The one of `values` whose name() the text of `field` is.
template <class Enum, size_t N>
Enum one_of(const JsonField& field, const std::array<Enum, N>& values) {
  const std::string text = field.text();
  std::string names;
  for (const Enum value : values) {
    if (text == name(value)) return value;
    names += (names.empty() ? "" : ", ") + std::string(name(value));
  }
  field.expected("one of " + names);
}

/// `text` with control characters replaced by '?'.
std::string printable(std::string text);

}  // namespace minfer
