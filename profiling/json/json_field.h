#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// This changes a parser's layout, and its default depends on the flags of the including file: tests have other flags than
// the library. So only this header includes simdjson.
#ifndef SIMDJSON_THREADS_ENABLED
#define SIMDJSON_THREADS_ENABLED 1
#endif
#include <simdjson.h>

namespace minfer {

/// A value in an untrusted JSON document, with the path to it for error messages:
/// `run.jsonl:12: ops[3].us: expected a number of at least 0, found string`. It points at its parent and at the parser's
/// document, so it must not outlive them. All getters throw FileError. If a key stands twice, one value
/// counts.
///
/// A lookup takes constant time if keys come in document order and elements by ascending index: a field
/// remembers the last place. One thread at a time.
class JsonField {
 public:
  /// The whole document; errors call it `place`.
  JsonField(simdjson::dom::element value, std::string_view place) : value_(value), name_(place) {}

  JsonField operator[](std::string_view key) const;           ///< of an object; must be there
  std::optional<JsonField> find(std::string_view key) const;  ///< of an object
  std::vector<std::string_view> keys() const;                 ///< of an object
  size_t size() const;                                        ///< of an array
  JsonField operator[](size_t index) const;                   ///< of an array, below size()

  double number() const;       ///< 0, or from 1e-9 to 1e15
  double saved_share() const;  ///< -1e9 to 1; negative: it took longer
  template <class Integer>
  Integer integer(std::type_identity_t<Integer> least, Integer most) const {
    return static_cast<Integer>(checked_integer(least, most));
  }
  bool boolean() const;
  std::string text() const;           ///< control characters replaced by '?'
  std::string_view raw_text() const;  ///< as in the document; do not show it to people

  [[noreturn]] void expected(std::string_view what) const;

 private:
  JsonField(simdjson::dom::element value, const JsonField& parent, std::string_view name, int64_t index)
      : value_(value), parent_(&parent), name_(name), index_(index) {}
  void start_object() const;
  std::optional<simdjson::dom::element> member(std::string_view key) const;
  int64_t checked_integer(int64_t least, int64_t most) const;
  std::string path() const;

  simdjson::dom::element value_;
  const JsonField* parent_ = nullptr;
  std::string_view name_;
  int64_t index_ = -1;
  // The place behind the last lookup.
  mutable bool is_started_ = false;
  mutable simdjson::dom::object::iterator next_member_;
  mutable simdjson::dom::object::iterator end_members_;
  mutable simdjson::dom::array::iterator next_element_;
  mutable size_t next_index_ = 0;
};

/// The member of `values` whose name() equals the text of `field`.
template <class Enum, size_t N>
Enum one_of(const JsonField& field, const std::array<Enum, N>& values) {
  const std::string_view text = field.raw_text();
  for (const Enum value : values) {
    if (text == name(value)) return value;
  }
  std::string names;
  for (const Enum value : values)
    names += (names.empty() ? "" : ", ") + std::string(name(value));
  field.expected("one of " + names);
}

/// `text` with control characters replaced by '?'.
std::string without_controls(std::string text);

}  // namespace minfer
