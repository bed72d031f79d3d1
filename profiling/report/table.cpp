#include "profiling/report/table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace minfer {
namespace {

constexpr size_t kLeastFirstColumn = 8;

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

std::vector<size_t> column_widths(const Table& table, size_t width) {
  std::vector<size_t> widths;
  for (const std::string& column : table.columns)
    widths.push_back(display_width(column));
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], display_width(row[i]));
  }
  size_t total = widths.size() - 1;
  for (const size_t column : widths)
    total += column;
  if (total > width) {
    const size_t excess = total - width;
    widths[0] = std::max(kLeastFirstColumn, widths[0] - std::min(widths[0], excess));
  }
  return widths;
}

void append_row(std::string& out, const std::vector<std::string>& cells, const std::vector<size_t>& widths) {
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string cell = i == 0 ? shortened(cells[i], widths[i]) : cells[i];
    const size_t shown = display_width(cell);
    const std::string padding(widths[i] > shown ? widths[i] - shown : 0, ' ');
    out += i == 0 ? cell + padding : " " + padding + cell;
  }
  out += '\n';
}

std::string csv_cell(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

void append_csv_row(std::string& out, const std::vector<std::string>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) out += ',';
    out += csv_cell(cells[i]);
  }
  out += '\n';
}

std::string markdown_row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) {
    row += ' ';
    for (const char c : cell)
      row += c == '|' ? std::string("\\|") : std::string(1, c);
    row += " |";
  }
  return row + "\n";
}

}  // namespace

size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return !continues_character(c); }));
}

std::string wrapped(std::string_view line, size_t width) {
  std::string out;
  size_t used = 0;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    const size_t needed = display_width(word);
    if (used > 0 && used + 1 + needed > width) {
      out += "\n  ";
      used = 2;
    } else if (used > 0) {
      out += ' ';
      ++used;
    }
    out += word;
    used += needed;
  }
  return out;
}

std::string shortened(const std::string& text, size_t width) {
  if (display_width(text) <= width) return text;
  size_t end = 0;
  for (size_t shown = 0; end < text.size(); ++end) {
    if (!continues_character(text[end]) && ++shown == width) break;
  }
  return text.substr(0, end) + "…";
}

std::string text_table(const Table& table, size_t width) {
  const std::vector<size_t> widths = column_widths(table, width);
  std::string out = table.title + "\n";
  append_row(out, table.columns, widths);
  for (const auto& row : table.rows)
    append_row(out, row, widths);
  return out;
}

std::string markdown_table(const Table& table) {
  std::string out = "### " + table.title + "\n\n" + markdown_row(table.columns) + "|:---|";
  for (size_t i = 1; i < table.columns.size(); ++i)
    out += "---:|";
  out += '\n';
  for (const auto& row : table.rows)
    out += markdown_row(row);
  return out;
}

std::string csv_table(const Table& table) {
  std::string out;
  append_csv_row(out, table.columns);
  for (const auto& row : table.rows)
    append_csv_row(out, row);
  return out;
}

std::string percent(double part, double whole) {
  return whole > 0.0 ? fmt::format("{:.1f}", 100.0 * part / whole) : std::string("-");
}

std::string three_digits(double number) {
  const double size = std::abs(number);
  if (size == 0.0) return "0";
  // Bounds a little below powers of ten, where rounding adds a digit.
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.09995 ? 3 : 4;
  return fmt::format("{:.{}f}", number, decimals);
}

}  // namespace minfer
