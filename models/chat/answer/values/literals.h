#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minfer::answer {

inline bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/// Without white space at its ends.
std::string_view trimmed(std::string_view text);

/// A byte of a function's name or of a Python identifier: letters, digits, `_`, `-`, `.`, and anything that is not ASCII.
bool is_name_byte(char c);

/// Finds markers anywhere in a text that comes byte by byte. Held back is what may still become a marker, a proper prefix of one, and
/// nothing else. No marker may stand within another.
class MarkerFinder {
 public:
  MarkerFinder() = default;
  explicit MarkerFinder(std::vector<std::string_view> markers) : markers_(std::move(markers)) {}

  static constexpr int32_t kNone = -1;
  /// The marker that ends with `c`, else kNone. `passed`: bytes that are no part of a marker are appended.
  int32_t push(char c, std::string& passed);
  const std::string& held() const { return held_; }
  /// Forgets what is held.
  void clear() { held_.clear(); }

 private:
  bool may_become_marker() const;

  std::vector<std::string_view> markers_;
  std::string held_;
};

/// Reads one of several literals, with white space in front of it allowed.
class ExpectedLiteral {
 public:
  ExpectedLiteral() = default;
  explicit ExpectedLiteral(std::vector<std::string_view> literals) : literals_(std::move(literals)) {}

  static constexpr int32_t kMore = -1;
  static constexpr int32_t kNone = -2;
  /// The literal that ends with `c`; kMore; kNone: with `c` it is none of them.
  int32_t push(char c);
  /// What was read since clear(); not the byte that made it none.
  const std::string& text() const { return text_; }
  /// How much of text() is white space in front.
  size_t num_spaces() const { return num_spaces_; }
  void clear();

 private:
  std::vector<std::string_view> literals_;
  std::string text_;
  size_t num_spaces_ = 0;
};

}  // namespace minfer::answer
