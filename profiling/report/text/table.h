#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// What text for a terminal is at most as wide as.
inline constexpr size_t kTextColumns = 80;

/// Cells of text under named columns; the first column is left-aligned, the others to the right.
struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  ///< each as long as `columns`
  /// By row, if not empty: what belongs to its first cell and is too long for a column, such as a kernel's name. Text has it on lines of
  /// its own below the row; the other formats have it in the cell.
  std::vector<std::string> below = {};
};

/// What becomes of a first cell that is wider than there is room for.
enum class LongNames : uint8_t {
  cut,   ///< it ends with an ellipsis: one row is one line
  wrap,  ///< it stands in front of its row, on as many lines as it needs
};

/// A table as lines of text at most `width` columns wide, title first. If it is wider, the first column gives way as long as it is wide
/// enough to be read; columns beyond follow as a second table, with the first column again.
std::string text_table(const Table& table, size_t width, LongNames long_names = LongNames::cut);
std::string markdown_table(const Table& table);
/// RFC 4180, without the title.
std::string csv_table(const Table& table);

/// The first column and those from `begin` up to before `end`, with what stands below rows.
Table columns_of(const Table& table, std::string title, size_t begin, size_t end);

/// The first `width` characters, the last of them an ellipsis if that is not all.
std::string shortened(const std::string& text, size_t width);

/// `part` of `whole` in per cent, with one decimal; "-" of nothing, and of what is not known (NaN).
std::string percent(double part, double whole);

/// A number in as few characters as show three digits: 1234, 123, 12.3, 1.23, 0.0123; "-" of what is not known (NaN).
std::string three_digits(double number);

/// Breaks a line at blanks so that no piece is wider than `width`; a word that is wider itself is broken where a line ends. Further
/// pieces are indented by `indent`, which is less than `width`.
std::string wrapped(std::string_view line, size_t width, size_t indent = 2);

/// In bold type on a terminal, if that is wanted.
std::string bold_if(bool wanted, const std::string& text);

/// Columns that UTF-8 text takes on a terminal, counting a code point as one and what sets colours as none.
size_t display_width(std::string_view text);

}  // namespace minfer
