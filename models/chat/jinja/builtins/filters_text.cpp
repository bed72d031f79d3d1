// Filters that make texts.
#include <algorithm>

#include "models/chat/jinja/builtins/arguments.h"
#include "models/chat/jinja/builtins/filter_table.h"
#include "models/chat/jinja/builtins/text_operations.h"
#include "models/chat/jinja/value/access.h"
#include "models/chat/jinja/value/operators.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {
namespace {

template <Text (*map)(const Text&)>
Value mapped(const Value& subject, const Arguments& arguments) {
  Bound("filter", arguments, {});
  const Text text = to_text(subject);
  Rendering::scan(8 * text.size());  // some steps a character: case is looked up
  return Value(map(text));
}

/// Jinja's own: a word begins behind white space and -([{<.
Text titled(const Text& text) {
  Text result;
  size_t begin = 0;
  const auto add_word = [&](size_t end) {
    if (begin == end) return;
    const size_t first = read_utf8(std::string_view(text.bytes()).substr(begin)).length;
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

Value trim(const Value& subject, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const Text text = to_text(subject);
  std::optional<std::string_view> characters;
  if (!bound[0].is_none()) characters = bound.text(0).bytes();
  return Value(strip(text, characters, Side::both));
}

Value replace_filter(const Value& subject, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  return Value(replace(to_text(subject), to_text(bound[0]), to_text(bound[1]),
                       bound.optional_integer(2).value_or(-1)));
}

Value string_filter(const Value& subject, const Arguments& arguments) {
  Bound("string", arguments, {});
  return subject.text() != nullptr ? subject : Value(to_text(subject));
}

Value safe(const Value& subject, const Arguments& arguments) {
  Bound("safe", arguments, {});
  Text text = to_text(subject);
  text.set_markup(true);
  return Value(std::move(text));
}

Value force_escape(const Value& subject, const Arguments& arguments) {
  Bound("escape", arguments, {});
  Text out;
  append_html(out, to_text(subject));
  Text text = std::move(out);
  text.set_markup(true);
  return Value(std::move(text));
}

Value escape(const Value& subject, const Arguments& arguments) {
  if (subject.text() != nullptr && subject.text()->is_markup()) return subject;
  return force_escape(subject, arguments);
}

Value indent(const Value& subject, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  const Text* text = subject.text();
  if (text == nullptr) fail<TemplateError>("indent: '{}', expected a text", subject.type_name());
  Text margin;
  if (const Text* given = bound[0].text()) {
    margin.append(*given);
  } else {
    margin.repeat(Text(" "), static_cast<size_t>(std::max<int64_t>(bound.integer(0, 4), 0)));
  }
  Text closed = *text;
  closed.append("\n", Origin::source);  // so that a line break at the end makes a last, empty line
  const Items lines = split_lines(closed, false);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Text& line = *lines[i].text();
    if (i > 0) out.append("\n");
    const bool indented = i == 0 ? bound.truth(1, false) : bound.truth(2, false) || !line.empty();
    if (indented) out.append(margin);
    out.append(line);
  }
  return Value(std::move(out));
}

Value truncate(const Value& subject, const Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Text* text = subject.text();
  if (text == nullptr) fail<TemplateError>("truncate: '{}', expected a text", subject.type_name());
  const int64_t length = bound.integer(0, 255);
  const int64_t leeway = bound.optional_integer(3).value_or(5);
  const Text end = bound.has(2) ? bound.text(2) : Text("...");
  const auto end_length = static_cast<int64_t>(count_characters(end.bytes()));
  if (length < end_length || leeway < 0)
    fail<TemplateError>("truncate: length {} and leeway {}, expected at least {} and 0", length, leeway,
                        end_length);
  const auto size = static_cast<int64_t>(count_characters(text->bytes()));
  if (size <= length || size - length <= leeway) return subject;
  const Value head = get_slice(subject, Value(), Value(length - end_length), Value());
  Text out;
  out.append(bound.truth(1, false) ? *head.text() : *split(*head.text(), " ", 1, true).front().text());
  out.append(end);
  return Value(std::move(out));
}

Value center(const Value& subject, const Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  return Value(pad(to_text(subject), bound.integer(0, 80), Text(" "), Align::center));
}

Value wordcount(const Value& subject, const Arguments& arguments) {
  Bound("wordcount", arguments, {});
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

Value format_filter(const Value& subject, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    fail<TemplateError>("format: positional and named arguments together, expected one kind");
  const Text text = to_text(subject);
  if (arguments.named.empty()) return format_percent(text, make_tuple(arguments.positional));
  Dict dict;
  for (const auto& [name, value] : arguments.named)
    dict.set(Text(name), value);
  return format_percent(text, make_dict(std::move(dict)));
}

/// Hugging Face's tojson, which differs from Jinja's in its parameters and in not escaping HTML.
Value tojson(const Value& subject, const Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.truth(0, false);
  style.sort_keys = bound.truth(3, false);
  style.multiline = !bound[1].is_none();
  if (style.multiline) style.item_separator = Text(",");
  if (const Text* margin = bound[1].text()) {
    style.indent = *margin;
  } else if (style.multiline) {
    Text spaces;
    spaces.repeat(Text(" "), static_cast<size_t>(std::max<int64_t>(bound.integer(1, 0), 0)));
    style.indent = std::move(spaces);
  }
  if (!bound[2].is_none()) {
    const Items separators = to_items(bound[2]);
    if (separators.size() != 2 || separators[0].text() == nullptr || separators[1].text() == nullptr)
      fail<TemplateError>("tojson: separators are not two texts");
    style.item_separator = *separators[0].text();
    style.key_separator = *separators[1].text();
  }
  return Value(to_json(subject, style));
}

}  // namespace

FilterEntries text_filters() {
  return {{"upper", mapped<to_upper>},
          {"lower", mapped<to_lower>},
          {"capitalize", mapped<to_capitalized>},
          {"title", mapped<titled>},
          {"trim", trim},
          {"replace", replace_filter},
          {"string", string_filter},
          {"safe", safe},
          {"escape", escape},
          {"e", escape},
          {"forceescape", force_escape},
          {"indent", indent},
          {"truncate", truncate},
          {"center", center},
          {"wordcount", wordcount},
          {"format", format_filter},
          {"tojson", tojson}};
}

}  // namespace minfer::jinja
