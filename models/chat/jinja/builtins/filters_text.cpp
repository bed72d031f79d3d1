// Filters that make texts.
#include <algorithm>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/builtins/number_format.h"
#include "models/chat/jinja/builtins/operators.h"
#include "models/chat/jinja/builtins/text_operations.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {
namespace {

/// Jinja's own: a word begins behind white space and -([{<.
Text titled(const Text& text) {
  Text result;
  size_t begin = 0;
  const auto add_word = [&](size_t end) {
    if (begin == end) return;
    const size_t first = read_utf8(text.bytes().substr(begin)).length;
    result.append(to_upper(text.substr(begin, first)));
    result.append(to_lower(text.substr(begin + first, end - begin - first)));
  };
  for_each_character(text.bytes(), [&](char32_t c, size_t at, size_t length) {
    if (!is_space(c) && std::u32string_view(U"-({[<").find(c) == std::u32string_view::npos) return;
    add_word(at);
    result.append(text, at, length);
    begin = at + length;
  });
  add_word(text.size());
  return result;
}

Value replace_filter(const Value& subject, const Bound& given) {
  return Value(replace(to_text(subject), to_text(given[0]), to_text(given[1]),
                       given.optional_integer(2).value_or(-1)));
}

Value string_filter(const Value& subject, const Bound&) {
  return subject.text() != nullptr ? subject : Value(to_text(subject));
}

Value as_markup(Text text) {
  text.set_markup(true);
  return Value(std::move(text));
}

Value safe(const Value& subject, const Bound&) {
  return as_markup(to_text(subject));
}

Value force_escape(const Value& subject, const Bound&) {
  Text out;
  append_html(out, to_text(subject));
  return as_markup(std::move(out));
}

Value escape(const Value& subject, const Bound& given) {
  const bool done = subject.text() != nullptr && subject.text()->is_markup();
  return done ? subject : force_escape(subject, given);
}

/// An indentation: a text, or a number of spaces.
Text margin_of(const Bound& given, size_t i, int64_t absent) {
  if (const Text* text = given[i].text()) return *text;
  Text margin;
  margin.repeat(Text(" "), static_cast<size_t>(std::max<int64_t>(given.integer(i, absent), 0)));
  return margin;
}

const Text& require_text(const Value& subject, std::string_view filter) {
  if (subject.text() == nullptr)
    fail<TemplateError>("{}: '{}', expected a text", filter, subject.type_name());
  return *subject.text();
}

Value indent(const Value& subject, const Bound& given) {
  Text closed = require_text(subject, "indent");
  const Text margin = margin_of(given, 0, 4);
  closed.append("\n");  // so that a line break at the end makes a last, empty line
  const Items lines = split_lines(closed, false);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Text& line = *lines[i].text();
    if (i > 0) out.append("\n");
    const bool indented = i == 0 ? given.truth(1) : given.truth(2) || !line.empty();
    if (indented) out.append(margin);
    out.append(line);
  }
  return Value(std::move(out));
}

Value truncate(const Value& subject, const Bound& given) {
  const Text& text = require_text(subject, "truncate");
  const int64_t length = given.integer(0, 255);
  const int64_t leeway = given.optional_integer(3).value_or(5);
  const Text end = given.text(2, "...");
  const auto end_length = static_cast<int64_t>(count_characters(end.bytes()));
  if (length < end_length || leeway < 0)
    fail<TemplateError>("truncate: length {} and leeway {}, expected at least {} and 0", length, leeway,
                        end_length);
  const auto size = static_cast<int64_t>(count_characters(text.bytes()));
  if (size <= length || size - length <= leeway) return subject;
  const Value head = get_slice(subject, Value(), Value(length - end_length), Value());
  Text out = given.truth(1) ? *head.text() : *split(*head.text(), " ", 1, true).front().text();
  out.append(end);
  return Value(std::move(out));
}

Value wordcount(const Value& subject, const Bound&) {
  const Text text = to_text(subject);
  int64_t count = 0;
  bool inside = false;
  Rendering::scan(4 * text.size());
  for_each_character(text.bytes(), [&](char32_t c, size_t, size_t) {
    const bool in_word = is_word(c);
    count += in_word && !inside ? 1 : 0;
    inside = in_word;
  });
  return Value(count);
}

Value format_filter(const Value& subject, const Bound& given) {
  if (!given.all.positional.empty() && !given.all.named.empty())
    fail<TemplateError>("format: positional and named arguments together, expected one kind");
  const Text text = to_text(subject);
  if (given.all.named.empty()) return format_percent(text, make_tuple(given.all.positional));
  Dict dict;
  for (const auto& [name, value] : given.all.named)
    dict.set(Text(name), value);
  return format_percent(text, make_dict(std::move(dict)));
}

/// Hugging Face's tojson, which differs from Jinja's in its parameters and in not escaping HTML.
Value tojson(const Value& subject, const Bound& given) {
  JsonStyle style;
  style.ensure_ascii = given.truth(0);
  style.sort_keys = given.truth(3);
  style.multiline = !given[1].is_none();
  if (style.multiline) {
    style.item_separator = Text(",");
    style.indent = margin_of(given, 1, 0);
  }
  if (!given[2].is_none()) {
    const Items separators = to_items(given[2]);
    if (separators.size() != 2 || separators[0].text() == nullptr || separators[1].text() == nullptr)
      fail<TemplateError>("tojson: separators are not two texts");
    style.item_separator = *separators[0].text();
    style.key_separator = *separators[1].text();
  }
  return Value(to_json(subject, style));
}

}  // namespace

std::span<const Builtin> text_filters() {
  static constexpr Builtin kFilters[] = {
      {"upper", {}, 0, mapped<to_upper>},
      {"lower", {}, 0, mapped<to_lower>},
      {"capitalize", {}, 0, mapped<to_capitalized>},
      {"title", {}, 0, mapped<titled>},
      {"trim", {"chars"}, 0, stripped<Side::both>},
      {"replace", {"old", "new", "count"}, 2, replace_filter},
      {"string", {}, 0, string_filter},
      {"safe", {}, 0, safe},
      {"escape", {}, 0, escape},
      {"e", {}, 0, escape},
      {"forceescape", {}, 0, force_escape},
      {"indent", {"width", "first", "blank"}, 0, indent},
      {"truncate", {"length", "killwords", "end", "leeway"}, 0, truncate},
      {"center", {"width"}, 0, padded<Align::center>},
      {"wordcount", {}, 0, wordcount},
      {"format", {"*"}, 0, format_filter},
      {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, tojson},
  };
  return kFilters;
}

}  // namespace minfer::jinja
