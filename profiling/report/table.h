#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// Cells of text under named columns; the first column is left-aligned, the others to the right.
struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  ///< each as long as `columns`
};

/// A table as lines of text at most `width` columns wide, title first: if it is wider, the first column is
/// cut.
std::string text_table(const Table& table, size_t width);
std::string markdown_table(const Table& table);
/// RFC 4180, without the title.
std::string csv_table(const Table& table);

/// The first `width` characters, the last of them an ellipsis if that is not all.
std::string shortened(const std::string& text, size_t width);

/// `part` of `whole` in per cent, with one decimal; "-" of nothing.
std::string percent(double part, double whole);

/// A number in as few characters as show three digits: 1234, 123, 12.3, 1.23, 0.0123.
std::string three_digits(double number);

/// Breaks a line at blanks so that no piece is wider than `width`, if it has blanks enough; further pieces
/// are indented by two.
std::string wrapped(std::string_view line, size_t width);

/// Columns that UTF-8 text takes on a terminal, counting a code point as one.
size_t display_width(std::string_view text);

}  // namespace minfer
