#include "models/grammar/code_points.h"

#include <algorithm>
#include <array>
#include <string>

#include <nlohmann/json.hpp>
#include <utf8proc.h>

namespace minfer {
namespace {

constexpr int kNumCategories = UTF8PROC_CATEGORY_CO + 1;

/// By general category.
const std::array<CodePoints, kNumCategories>& categories() {
  static const auto table = [] {
    std::array<CodePoints, kNumCategories> sets;
    for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
      CodePoints& set = sets[static_cast<size_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c)))];
      if (!set.empty() && set.back().last + 1 == c) {
        set.back().last = c;
      } else {
        set.push_back({c, c});
      }
    }
    return sets;
  }();
  return table;
}

std::string json_escape(char32_t c) {
  const std::string quoted = nlohmann::json(std::string(1, static_cast<char>(c))).dump();
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

CodePoints merged_ranges(CodePoints set) {
  std::ranges::sort(set, {}, &CodePointRange::first);
  size_t size = 0;
  for (const CodePointRange range : set) {
    if (size > 0 && range.first <= set[size - 1].last + 1) {
      set[size - 1].last = std::max(set[size - 1].last, range.last);
    } else {
      set[size++] = range;
    }
  }
  set.resize(size);
  return set;
}

CodePoints complement(CodePoints set) {
  CodePoints result;
  char32_t next = 0;
  for (const CodePointRange range : merged_ranges(std::move(set))) {
    if (range.first > next) result.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) result.push_back({next, kMaxCodePoint});
  return result;
}

CodePoints intersection(const CodePoints& a, const CodePoints& b) {
  CodePoints outside = complement(a);
  const CodePoints others = complement(b);
  outside.insert(outside.end(), others.begin(), others.end());
  return complement(std::move(outside));
}

CodePoints line_ends() {
  return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
}

CodePoints with_both_cases(CodePoints set) {
  constexpr char32_t kBetweenCases = 'a' - 'A';
  for (const CodePointRange upper : intersection(set, {{'A', 'Z'}}))
    set.push_back({upper.first + kBetweenCases, upper.last + kBetweenCases});
  for (const CodePointRange lower : intersection(set, {{'a', 'z'}}))
    set.push_back({lower.first - kBetweenCases, lower.last - kBetweenCases});
  return merged_ranges(std::move(set));
}

std::optional<CodePoints> class_escape(char letter) {
  switch (letter) {
    case 'd':
      return CodePoints{{'0', '9'}};
    case 'w':
      return CodePoints{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    case 's':
      return CodePoints{{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                        {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                        {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    case 'D':
      return complement(*class_escape('d'));
    case 'W':
      return complement(*class_escape('w'));
    case 'S':
      return complement(*class_escape('s'));
    default:
      return std::nullopt;
  }
}

std::optional<CodePoints> unicode_property(std::string_view name) {
  if (name == "Any") return CodePoints{{0, kMaxCodePoint}};
  if (name == "ASCII") return CodePoints{{0, 0x7f}};
  CodePoints set;
  for (const CodePoints& category : categories()) {
    if (category.empty()) continue;
    const std::string_view known =
        utf8proc_category_string(static_cast<utf8proc_int32_t>(category.front().first));
    if (name != known && !(name.size() == 1 && known.starts_with(name))) continue;
    set.insert(set.end(), category.begin(), category.end());
  }
  if (set.empty()) return std::nullopt;
  return merged_ranges(std::move(set));
}

GrammarBuilder::Expr spelled(GrammarBuilder& builder, Spelling spelling,
                             std::span<const CodePointRange> set) {
  if (spelling == Spelling::plain) return builder.characters(set);
  static const CodePoints escaped{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
  static const CodePoints unescaped = complement(escaped);
  const CodePoints wanted(set.begin(), set.end());
  std::vector<GrammarBuilder::Expr> parts{builder.characters(intersection(wanted, unescaped))};
  for (const CodePointRange range : intersection(wanted, escaped)) {
    for (char32_t c = range.first; c <= range.last; ++c)
      parts.push_back(builder.literal(json_escape(c)));
  }
  return builder.choice(parts);
}

}  // namespace minfer
