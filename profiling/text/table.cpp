#include "profiling/text/table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace minfer {
namespace {

constexpr size_t kLeastFirstColumn = 8;      // to be read at all
constexpr size_t kReadableFirstColumn = 16;  // before columns are moved to a second table
constexpr size_t kIndentBelow = 2;
constexpr std::string_view kColourBegin = "\x1b[";

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

/// Bytes of the sequence that sets a colour at the front of `text`; 0: there is none.
size_t colour_bytes(std::string_view text) {
  if (!text.starts_with(kColourBegin)) return 0;
  const size_t end = text.find('m');
  return end == std::string_view::npos ? text.size() : end + 1;
}

/// Columns of a table that stand beside one another, by index; the first is always 0.
struct ColumnBlock {
  std::vector<size_t> columns;
  std::vector<size_t> widths;
};

std::vector<size_t> natural_widths(const Table& table) {
  std::vector<size_t> widths;
  for (const std::string& column : table.columns)
    widths.push_back(display_width(column));
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], display_width(row[i]));
  }
  return widths;
}

/// As many columns beside one another as fit, at least one beside the first.
std::vector<ColumnBlock> blocks_of(const Table& table, size_t width) {
  const std::vector<size_t> natural = natural_widths(table);
  const size_t least_first = std::min(natural[0], kReadableFirstColumn);
  const size_t most_beside = width - std::min(width, kLeastFirstColumn + 1);
  std::vector<ColumnBlock> blocks;
  size_t used = width + 1;
  for (size_t i = 1; i < natural.size(); ++i) {
    const size_t its = std::min(natural[i], most_beside);
    if (used + 1 + its > width && (blocks.empty() || blocks.back().columns.size() > 1)) {
      blocks.push_back({.columns = {0}, .widths = {natural[0]}});
      used = least_first;
    }
    blocks.back().columns.push_back(i);
    blocks.back().widths.push_back(its);
    used += 1 + its;
  }
  if (blocks.empty()) blocks.push_back({.columns = {0}, .widths = {natural[0]}});
  for (ColumnBlock& block : blocks) {
    size_t beside = 0;
    for (size_t i = 1; i < block.widths.size(); ++i)
      beside += 1 + block.widths[i];
    block.widths[0] = std::min(natural[0], width - std::min(width, beside));
  }
  return blocks;
}

void append_row(std::string& out, const std::vector<std::string>& cells, const ColumnBlock& block) {
  for (size_t i = 0; i < block.columns.size(); ++i) {
    const std::string cell = shortened(cells[block.columns[i]], block.widths[i]);
    const size_t shown = display_width(cell);
    const std::string padding(block.widths[i] > shown ? block.widths[i] - shown : 0, ' ');
    out += i == 0 ? cell + padding : " " + padding + cell;
  }
  while (out.ends_with(' '))
    out.pop_back();
  out += '\n';
}

void append_block(std::string& out, const Table& table, const ColumnBlock& block, size_t width,
                  LongNames long_names) {
  append_row(out, table.columns, block);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    std::vector<std::string> row = table.rows[i];
    if (long_names == LongNames::wrap && display_width(row[0]) > block.widths[0]) {
      out += wrapped(row[0], width) + "\n";
      row[0].clear();
    }
    append_row(out, row, block);
    if (i >= table.below.size() || table.below[i].empty()) continue;
    out += std::string(kIndentBelow, ' ');
    out += wrapped(table.below[i], width - kIndentBelow, kIndentBelow + 2) + "\n";
  }
}

/// Cells of a row with what stands below it in the first.
std::vector<std::string> joined_cells(const Table& table, size_t row) {
  std::vector<std::string> cells = table.rows[row];
  if (row < table.below.size() && !table.below[row].empty()) cells[0] += ": " + table.below[row];
  return cells;
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

std::string csv_row(const std::vector<std::string>& cells) {
  std::vector<std::string> quoted;
  std::ranges::transform(cells, std::back_inserter(quoted), csv_cell);
  return fmt::format("{}\n", fmt::join(quoted, ","));
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
  size_t shown = 0;
  while (!text.empty()) {
    const size_t colour = colour_bytes(text);
    if (colour == 0 && !continues_character(text.front())) ++shown;
    text.remove_prefix(std::max<size_t>(colour, 1));
  }
  return shown;
}

std::string bold_if(bool wanted, const std::string& text) {
  return wanted ? "\x1b[1m" + text + "\x1b[0m" : text;
}

std::string wrapped(std::string_view line, size_t width, size_t indent) {
  std::string out;
  size_t used = 0;
  bool is_new = true;  // nothing but the indent stands on this line
  const auto new_line = [&] {
    out += "\n" + std::string(indent, ' ');
    used = indent;
    is_new = true;
  };
  while (!line.empty()) {
    std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    if (used > 0 && !is_new) {
      if (used + 1 + display_width(word) > width) {
        new_line();
      } else {
        out += ' ';
        ++used;
      }
    }
    while (display_width(word) > width - used) {
      size_t bytes = 0;
      for (size_t shown = 0; bytes < word.size(); ++bytes) {
        if (!continues_character(word[bytes]) && shown++ == width - used) break;
      }
      out += word.substr(0, bytes);
      word.remove_prefix(bytes);
      new_line();
    }
    out += word;
    used += display_width(word);
    is_new = false;
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

std::string text_table(const Table& table, size_t width, LongNames long_names) {
  std::string out = wrapped(table.title, width) + "\n";
  for (const ColumnBlock& block : blocks_of(table, width))
    append_block(out, table, block, width, long_names);
  return out;
}

Table columns_of(const Table& table, std::string title, size_t begin, size_t end) {
  Table part{std::move(title), {}, {}, table.below};
  const auto cells_of = [&](const std::vector<std::string>& cells) {
    std::vector<std::string> its{cells[0]};
    for (size_t i = begin; i < std::min(end, cells.size()); ++i)
      its.push_back(cells[i]);
    return its;
  };
  part.columns = cells_of(table.columns);
  for (const auto& row : table.rows)
    part.rows.push_back(cells_of(row));
  return part;
}

std::string markdown_table(const Table& table) {
  std::string out = "### " + table.title + "\n\n" + markdown_row(table.columns) + "|:---|";
  for (size_t i = 1; i < table.columns.size(); ++i)
    out += "---:|";
  out += '\n';
  for (size_t i = 0; i < table.rows.size(); ++i)
    out += markdown_row(joined_cells(table, i));
  return out;
}

std::string csv_table(const Table& table) {
  std::string out = csv_row(table.columns);
  for (size_t i = 0; i < table.rows.size(); ++i)
    out += csv_row(joined_cells(table, i));
  return out;
}

std::string percent(double part, double whole) {
  return whole > 0.0 && std::isfinite(part) ? fmt::format("{:.1f}", 100.0 * part / whole) : std::string("-");
}

std::string three_digits(double number) {
  if (!std::isfinite(number)) return "-";
  const double size = std::abs(number);
  if (size == 0.0) return "0";
  // Bounds a little below powers of ten, where rounding adds a digit.
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.09995 ? 3 : 4;
  return fmt::format("{:.{}f}", number, decimals);
}

}  // namespace minfer
