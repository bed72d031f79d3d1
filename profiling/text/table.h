#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace minfer {

/// The largest width of text for a terminal.
inline constexpr size_t kTextColumns = 80;

/// A number with three digits, in few characters: 1234, 123, 12.3, 1.23, 0.0123; "-" if the number is not known (NaN).
std::string three_digits(double number);

inline std::string ms(double us) {
  return three_digits(us * 1e-3);
}
inline std::string mb(double bytes) {
  return three_digits(bytes * 1e-6);
}
inline std::string mib(int64_t bytes) {
  return three_digits(static_cast<double>(bytes) / (1 << 20));
}

/// A cell of a table: a text as it is, a whole number in full, another one by three_digits().
template <class Value>
std::string cell_of(const Value& value) {
  if constexpr (std::is_floating_point_v<Value>) {
    return three_digits(value);
  } else if constexpr (std::is_arithmetic_v<Value>) {
    return std::to_string(value);
  } else {
    return std::string(value);
  }
}

/// Cells of text under named columns. The first column is left-aligned, the others are right-aligned.
struct Table {
  std::string title = {};
  std::vector<std::string> columns = {};
  std::vector<std::vector<std::string>> rows = {};  ///< each as long as `columns`
  /// By row, if not empty: an addition to the first cell that is too long for a column, such as a kernel's name. Text has it on lines of
  /// its own below the row; the other formats have it in the cell.
  std::vector<std::string> below = {};

  template <class... Values>
  void add(const Values&... values) {
    rows.push_back({cell_of(values)...});
  }
};

/// How to show a first cell that is wider than its column.
enum class LongNames : uint8_t {
  cut,   ///< the name ends with an ellipsis, and a row is one line
  wrap,  ///< the name stands in front of its row, on as many lines as needed
};

/// A table as lines of text at most `width` columns wide, title first. If the table is wider, the first column shrinks while it stays
/// wide enough to read. Columns beyond that follow as a second table, which repeats the first column.
std::string text_table(const Table& table, size_t width, LongNames long_names = LongNames::cut);
std::string markdown_table(const Table& table);
/// RFC 4180, without the title.
std::string csv_table(const Table& table);

/// The first column and the columns from `begin` up to before `end`, with the lines below rows.
Table columns_of(const Table& table, std::string title, size_t begin, size_t end);

/// The first `width` characters; the last is an ellipsis if the text is longer.
std::string shortened(const std::string& text, size_t width);

/// `part` of `whole` in per cent, with one decimal; "-" if `whole` is 0 or a value is not known (NaN).
std::string percent(double part, double whole);

/// Breaks a line at blanks so that no piece is wider than `width`; a wider word is broken where a line ends. Later
/// pieces are indented by `indent`, which is less than `width`.
std::string wrapped(std::string_view line, size_t width, size_t indent = 2);

/// The text, in bold type for a terminal if `wanted`.
std::string bold_if(bool wanted, const std::string& text);

/// The columns that UTF-8 text takes on a terminal: one for each code point, none for colour codes.
size_t display_width(std::string_view text);

}  // namespace minfer
