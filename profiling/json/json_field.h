#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// A parser has another layout without it, and which it is depends on the flags of whoever includes the header: tests have others than
// the library. So simdjson is included here alone.
#ifndef SIMDJSON_THREADS_ENABLED
#define SIMDJSON_THREADS_ENABLED 1
#endif
#include <simdjson.h>

namespace minfer {

/// A value in an untrusted JSON document together with the way to it, so that an error says where it is:
/// `run.jsonl:12: ops[3].us: expected a number of at least 0, found string`. Points at its parent, so it
/// lives shorter, and at the parser's document. All getters throw FileError. Of a key that stands twice one
/// value counts.
///
/// Looking up keys in the order in which they stand, and elements by ascending index, takes constant time each:
/// a field remembers where it found the last one. One thread at a time.
class JsonField {
 public:
  /// The whole document, called `place` in errors.
  JsonField(simdjson::dom::element value, std::string_view place) : value_(value), name_(place) {}

  JsonField operator[](std::string_view key) const;           ///< of an object; has to be there
  std::optional<JsonField> find(std::string_view key) const;  ///< of an object
  std::vector<std::string_view> keys() const;                 ///< of an object
  size_t size() const;                                        ///< of an array
  JsonField operator[](size_t index) const;                   ///< of an array, below size()

  // Ranges are far beyond what is measured, and leave room: no sum, product or conversion that readers make of some values overflows or
  // becomes infinite. What is summed over lines is summed as a double or is a count.

  double number() const;        ///< 0, or from 1e-9 to 1e15
  double saved_share() const;   ///< -1e9 to 1: below 0 it took longer
  int64_t duration_ns() const;  ///< of microseconds
  int32_t small(int32_t least = 0) const { return integer(least, 1 << 28); }
  int64_t count(int64_t least = 0) const { return integer(least, int64_t{1'000'000'000'000}); }
  int64_t bytes() const { return integer(0, int64_t{100'000'000'000'000}); }
  int64_t work() const { return integer(0, int64_t{1'000'000'000'000'000'000}); }  ///< bytes or operations
  /// On some clock.
  int64_t time_ns(int64_t least = 0) const { return integer(least, int64_t{4'000'000'000'000'000'000}); }
  template <class Integer>
  Integer integer(std::type_identity_t<Integer> least, Integer most) const {
    return static_cast<Integer>(checked_integer(least, most));
  }
  bool boolean() const;
  std::string text() const;           ///< control characters replaced by '?'
  std::string_view raw_text() const;  ///< as it stands in the document: not for people's eyes

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
  // Behind what was found last.
  mutable bool is_started_ = false;
  mutable simdjson::dom::object::iterator next_member_;
  mutable simdjson::dom::object::iterator end_members_;
  mutable simdjson::dom::array::iterator next_element_;
  mutable size_t next_index_ = 0;
};

/// The one of `values` whose name() the text of `field` is.
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
std::string printable(std::string text);

}  // namespace minfer
