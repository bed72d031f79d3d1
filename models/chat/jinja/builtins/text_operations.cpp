#include "models/chat/jinja/builtins/text_operations.h"

#include <algorithm>
#include <string>

#include "models/chat/jinja/builtins/operators.h"

namespace minfer::jinja {
namespace {

void add(Items& items, const Text& text, size_t begin, size_t end) {
  items.emplace_back(text.substr(begin, end - begin));
}

struct Stretch {
  size_t begin;
  size_t end;
};

}  // namespace

Text strip(const Text& text, const std::optional<std::string_view>& characters, Side side) {
  std::u32string set;
  if (characters) for_each_character(*characters, [&](char32_t c, size_t, size_t) { set += c; });
  Rendering::step(text.size() * set.size() / 64);
  const auto stripped = [&](char32_t c) {
    return characters ? set.find(c) != std::u32string::npos : is_space(c);
  };
  const std::string_view kept = strip_ends(text.bytes(), stripped);
  const size_t first = side == Side::right ? 0 : static_cast<size_t>(kept.data() - text.bytes().data());
  const size_t end =
      side == Side::left ? text.size() : static_cast<size_t>(kept.data() - text.bytes().data()) + kept.size();
  Text result = kept.empty() ? Text() : text.substr(first, end - first);
  result.set_markup(text.is_markup());
  return result;
}

Text replace(const Text& text, const Text& old, const Text& replacement, int64_t count) {
  Rendering::scan(text.size());
  Text out;
  size_t done = 0;
  size_t from = 0;
  for (int64_t i = 0; i != count; ++i) {
    const size_t found = find_bytes(text.bytes(), old.bytes(), from);
    if (found == std::string_view::npos) break;
    Rendering::step();
    out.append(text, done, found - done);
    out.append(replacement);
    done = found + old.size();
    from = done;
    if (old.empty()) {  // go on behind the next character
      if (found == text.size()) break;
      from = found + read_utf8(text.bytes().substr(found)).length;
    }
  }
  out.append(text, done, text.size() - done);
  return out;
}

size_t find_part(std::string_view text, std::string_view part, bool from_right) {
  if (!from_right) return find_bytes(text, part);
  if (part.size() < 16) return text.rfind(part);
  const String reversed_text(text.rbegin(), text.rend());
  const String reversed_part(part.rbegin(), part.rend());
  const size_t found = find_bytes(reversed_text, reversed_part);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

Items split(const Text& text, std::string_view separator, int64_t count, bool from_right) {
  Rendering::scan(text.size());
  Vector<size_t> cuts;  // where separators begin
  std::string_view rest = text.bytes();
  size_t from = 0;
  while (static_cast<int64_t>(cuts.size()) != count) {
    const size_t found = from_right ? find_part(rest, separator, true) : find_bytes(rest, separator, from);
    if (found == std::string_view::npos) break;
    Rendering::scan(from_right ? rest.size() : 0);
    cuts.push_back(found);
    from = found + separator.size();
    if (from_right) rest = rest.substr(0, found);
  }
  if (from_right) std::ranges::reverse(cuts);
  Items items;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    add(items, text, begin, cut);
    begin = cut + separator.size();
  }
  add(items, text, begin, text.size());
  return items;
}

Items split_words(const Text& text, int64_t count, bool from_right) {
  Vector<Stretch> words;
  bool inside = false;
  for_each_character(text.bytes(), [&](char32_t c, size_t begin, size_t length) {
    const bool begins = !std::exchange(inside, !is_space(c)) && inside;
    if (begins) words.push_back({begin, begin});
    if (inside) words.back().end = begin + length;
  });
  const bool rest_stays = count >= 0 && words.size() > static_cast<size_t>(count);
  if (rest_stays && from_right) {  // what is left over begins where the text does and ends with its last word
    const size_t first = words.size() - static_cast<size_t>(count) - 1;
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(first));
    words.front().begin = 0;
  } else if (rest_stays) {
    words.resize(static_cast<size_t>(count) + 1);
    words.back().end = text.size();
  }
  Items items;
  for (const Stretch& word : words)
    add(items, text, word.begin, word.end);
  return items;
}

Items split_lines(const Text& text, bool keep_ends) {
  Rendering::scan(text.size());
  const std::string_view bytes = text.bytes();
  Items lines;
  size_t line = 0;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Unit unit = read_utf8(bytes.substr(at));
    const size_t next = at + (bytes.substr(at).starts_with("\r\n") ? 2 : unit.length);
    if (is_line_end(unit.character)) {
      add(lines, text, line, keep_ends ? next : at);
      line = next;
    }
    at = next;
  }
  if (line < bytes.size()) add(lines, text, line, bytes.size());
  return lines;
}

Text pad(const Text& text, int64_t width, const Text& fill, Align align) {
  Rendering::scan(text.size());
  const auto length = static_cast<int64_t>(count_characters(text.bytes()));
  const int64_t missing = width > length ? width - length : 0;
  const int64_t left = align == Align::left    ? 0
                       : align == Align::right ? missing
                                               : missing / 2 + (missing & width & 1);
  Text out;
  out.repeat(fill, static_cast<size_t>(left));
  out.append(text);
  out.repeat(fill, static_cast<size_t>(missing - left));
  return out;
}

bool has_case(const Text& text, bool (*is_wanted)(char32_t)) {
  bool any = false, all_wanted = true;
  for_each_character(text.bytes(), [&](char32_t c, size_t, size_t) {
    any = any || is_wanted(c);
    all_wanted = all_wanted && (is_wanted(c) || !is_cased(c));
  });
  return any && all_wanted;
}

}  // namespace minfer::jinja
