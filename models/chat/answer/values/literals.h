#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minfer::answers {

inline bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/// The text without white space at its ends.
std::string_view trimmed(std::string_view text);

/// True for a byte of a function's name or of a Python identifier: letters, digits, `_`, `-`, `.`, and every byte that is not ASCII.
bool is_name_byte(char c);

/// Finds markers anywhere in a text that comes byte by byte. It holds back only bytes that may still become a marker: a proper prefix
/// of a marker. No marker may be part of another.
class MarkerFinder {
 public:
  MarkerFinder() = default;
  explicit MarkerFinder(std::vector<std::string_view> markers) : markers_(std::move(markers)) {}

  static constexpr int32_t kNone = -1;
  /// Returns the index of the marker that ends with `c`, else kNone. Appends bytes outside markers to `passed`.
  int32_t push(char c, std::string& passed);
  const std::string& held() const { return held_; }
  /// Forgets the bytes held back.
  void clear() { held_.clear(); }

 private:
  std::vector<std::string_view> markers_;
  std::string held_;
};

/// Reads one of several literals. White space in front of it is allowed.
class ExpectedLiteral {
 public:
  ExpectedLiteral() = default;
  explicit ExpectedLiteral(std::vector<std::string_view> literals) : literals_(std::move(literals)) {}

  static constexpr int32_t kMore = -1;
  static constexpr int32_t kNone = -2;
  /// Returns the index of the literal that ends with `c`; kMore: none has ended; kNone: no literal fits with `c`.
  int32_t push(char c);
  /// The text since clear(), without the byte that returned kNone.
  const std::string& text() const { return text_; }
  /// The number of bytes of white space in front in text().
  size_t num_spaces() const { return num_spaces_; }
  void clear();

 private:
  std::vector<std::string_view> literals_;
  std::string text_;
  size_t num_spaces_ = 0;
};

}  // namespace minfer::answers
