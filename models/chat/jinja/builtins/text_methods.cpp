#include <algorithm>

#include "models/chat/jinja/builtins/arguments.h"
#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/builtins/text_operations.h"
#include "models/chat/jinja/value/access.h"
#include "models/chat/jinja/value/operators.h"
#include "models/chat/jinja/value/unicode.h"

namespace minfer::jinja {
namespace {

template <Text (*map)(const Text&)>
Value mapped_text(const Value& self, const Arguments& arguments) {
  Bound("method", arguments, {});
  Rendering::scan(8 * self.text()->size());  // some steps a character: case is looked up
  return Value(map(*self.text()));
}

template <Side side>
Value stripped(const Value& self, const Arguments& arguments) {
  const Bound bound("strip", arguments, {""});
  std::optional<std::string_view> characters;
  if (!bound[0].is_none()) characters = bound.text(0).bytes();
  return Value(strip(*self.text(), characters, side));
}

template <bool from_right>
Value split_method(const Value& self, const Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const int64_t count = bound.integer(1, -1);
  if (bound[0].is_none()) return make_list(split_words(*self.text(), count, from_right));
  const Text& separator = bound.text(0);
  if (separator.empty()) fail<TemplateError>("split(): an empty separator");
  return make_list(split(*self.text(), separator.bytes(), count, from_right));
}

Value splitlines(const Value& self, const Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  return make_list(split_lines(*self.text(), bound.truth(0, false)));
}

template <bool from_right>
Value partition(const Value& self, const Arguments& arguments) {
  const Bound bound("partition", arguments, {""}, 1);
  const Text& text = *self.text();
  const Text& separator = bound.text(0);
  if (separator.empty()) fail<TemplateError>("partition(): an empty separator");
  Rendering::scan(text.size());
  const size_t found = from_right ? find_last_bytes(text.bytes(), separator.bytes())
                                  : find_bytes(text.bytes(), separator.bytes());
  if (found == std::string_view::npos)
    return from_right ? make_tuple({make_text(""), make_text(""), self})
                      : make_tuple({self, make_text(""), make_text("")});
  const size_t behind = found + separator.size();
  return make_tuple({Value(text.substr(0, found)), Value(text.substr(found, separator.size())),
                     Value(text.substr(behind, text.size() - behind))});
}

Value replace_method(const Value& self, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"", "", ""}, 2);
  return Value(replace(*self.text(), bound.text(0), bound.text(1), bound.integer(2, -1)));
}

Value join_with(const Value& self, const Arguments& arguments) {
  const Bound bound("join", arguments, {""}, 1);
  const std::shared_ptr<Iterator> iterator = iterate(bound[0]);
  Text out;
  bool any = false;
  while (const std::optional<Value> item = iterator->next()) {
    if (item->text() == nullptr)
      fail<TemplateError>("join(): an element is a '{}', expected a text", item->type_name());
    if (any) out.append(*self.text());
    any = true;
    out.append(*item->text());
  }
  return Value(std::move(out));
}

/// Bytes [begin, end) of the characters that the optional arguments `at` and `at + 1` choose, as a slice does.
struct Window {
  size_t begin;
  size_t end;
  bool exists;  ///< false: it begins behind the text's end, where not even "" is found
};

Window find_window(const Text& text, const Bound& bound, size_t at) {
  if (bound[at].is_none() && bound[at + 1].is_none()) return {0, text.size(), true};
  const auto length = static_cast<int64_t>(count_characters(text.bytes()));
  const auto clip = [length](int64_t i) { return i < 0 ? std::max<int64_t>(i + length, 0) : i; };
  const int64_t first = clip(std::max(bound.optional_integer(at).value_or(0), -length));
  const int64_t last =
      std::min(clip(std::max(bound.optional_integer(at + 1).value_or(length), -length)), length);
  if (first > last) return {0, 0, false};
  std::string_view rest = text.bytes();
  size_t begin = 0;
  for (int64_t i = 0; i < last; ++i) {
    if (i == first) begin = text.size() - rest.size();
    rest.remove_prefix(read_utf8(rest).length);
  }
  const size_t end = text.size() - rest.size();
  return {first == last ? end : begin, end, true};
}

template <bool at_end>
Value affix(const Value& self, const Arguments& arguments) {
  const Bound bound(at_end ? "endswith" : "startswith", arguments, {"", "", ""}, 1);
  const Window window = find_window(*self.text(), bound, 1);
  const std::string_view text =
      std::string_view(self.text()->bytes()).substr(window.begin, window.end - window.begin);
  const auto matches = [&](const Value& value) {
    if (value.text() == nullptr)
      fail<TemplateError>("startswith() or endswith() of a '{}', expected a text", value.type_name());
    const std::string_view part = value.text()->bytes();
    return window.exists && (at_end ? text.ends_with(part) : text.starts_with(part));
  };
  const Sequence* several = bound[0].sequence();
  if (several != nullptr && several->kind != Sequence::Kind::list)
    return Value(std::ranges::any_of(several->items, matches));
  bound[0].require_defined();
  return Value(matches(bound[0]));
}

enum class Missing { minus_one, error };

template <bool from_right, Missing missing>
Value find_method(const Value& self, const Arguments& arguments) {
  const Bound bound("find or index", arguments, {"", "", ""}, 1);
  const Text& text = *self.text();
  const Text& part = bound.text(0);
  Rendering::scan(text.size());
  const Window window = find_window(text, bound, 1);
  const std::string_view inside =
      std::string_view(text.bytes()).substr(window.begin, window.end - window.begin);
  const size_t found = !window.exists ? std::string_view::npos
                       : from_right   ? find_last_bytes(inside, part.bytes())
                                      : find_bytes(inside, part.bytes());
  if (found != std::string_view::npos)
    return Value(static_cast<int64_t>(
        count_characters(std::string_view(text.bytes()).substr(0, window.begin + found))));
  if (missing == Missing::error) fail<TemplateError>("index(): the text does not hold what is looked for");
  return Value(int64_t{-1});
}

Value count(const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"", "", ""}, 1);
  const Text& text = *self.text();
  const Text& part = bound.text(0);
  Rendering::scan(text.size());
  const Window window = find_window(text, bound, 1);
  if (!window.exists) return Value(int64_t{0});
  const std::string_view inside =
      std::string_view(text.bytes()).substr(window.begin, window.end - window.begin);
  if (part.empty()) return Value(static_cast<int64_t>(count_characters(inside)) + 1);
  int64_t number = 0;
  for (size_t at = find_bytes(inside, part.bytes()); at != std::string_view::npos;
       at = find_bytes(inside, part.bytes(), at + part.size())) {
    Rendering::step();
    ++number;
  }
  return Value(number);
}

template <bool at_end>
Value without_affix(const Value& self, const Arguments& arguments) {
  const Bound bound(at_end ? "removesuffix" : "removeprefix", arguments, {""}, 1);
  const Text& text = *self.text();
  const std::string_view affix = bound.text(0).bytes();
  if (!(at_end ? text.bytes().ends_with(affix) : text.bytes().starts_with(affix))) return self;
  return Value(text.substr(at_end ? 0 : affix.size(), text.size() - affix.size()));
}

template <Align align>
Value padded(const Value& self, const Arguments& arguments) {
  const Bound bound("ljust, rjust or center", arguments, {"", ""}, 1);
  const Text fill = bound.has(1) ? bound.text(1) : Text(" ");
  if (count_characters(fill.bytes()) != 1)
    fail<TemplateError>("ljust(), rjust() or center(): expected one character to fill with");
  return Value(pad(*self.text(), bound.integer(0, 0), fill, align));
}

Value zfill(const Value& self, const Arguments& arguments) {
  const Bound bound("zfill", arguments, {""}, 1);
  const Text& text = *self.text();
  const bool is_signed = text.bytes().starts_with('-') || text.bytes().starts_with('+');
  const size_t sign = is_signed ? 1 : 0;
  Text out;
  out.append(text, 0, sign);
  out.append(pad(text.substr(sign, text.size() - sign),
                 std::max<int64_t>(bound.integer(0, 0), 0) - static_cast<int64_t>(sign), Text("0"),
                 Align::right));
  return Value(std::move(out));
}

/// All characters are of a kind, and there is one.
template <bool (*is_kind)(char32_t)>
Value all(const Value& self, const Arguments& arguments) {
  Bound("method", arguments, {});
  bool holds = !self.text()->empty();
  for_each_character(self.text()->bytes(), [&](char32_t c, size_t, size_t) { holds = holds && is_kind(c); });
  return Value(holds);
}

bool is_alphanumeric(char32_t c) {
  return is_word(c) && c != '_';
}

template <bool (*is_wanted)(char32_t)>
Value cased(const Value& self, const Arguments& arguments) {
  Bound("method", arguments, {});
  return Value(has_case(*self.text(), is_wanted));
}

Value isascii(const Value& self, const Arguments& arguments) {
  Bound("isascii", arguments, {});
  return Value(is_ascii(self.text()->bytes()));
}

}  // namespace

std::unordered_map<std::string_view, Method> text_methods() {
  return {{"upper", mapped_text<to_upper>},
          {"lower", mapped_text<to_lower>},
          {"capitalize", mapped_text<to_capitalized>},
          {"title", mapped_text<to_title>},
          {"swapcase", mapped_text<to_swapped>},
          {"strip", stripped<Side::both>},
          {"lstrip", stripped<Side::left>},
          {"rstrip", stripped<Side::right>},
          {"split", split_method<false>},
          {"rsplit", split_method<true>},
          {"splitlines", splitlines},
          {"partition", partition<false>},
          {"rpartition", partition<true>},
          {"replace", replace_method},
          {"join", join_with},
          {"startswith", affix<false>},
          {"endswith", affix<true>},
          {"find", find_method<false, Missing::minus_one>},
          {"rfind", find_method<true, Missing::minus_one>},
          {"index", find_method<false, Missing::error>},
          {"rindex", find_method<true, Missing::error>},
          {"count", count},
          {"removeprefix", without_affix<false>},
          {"removesuffix", without_affix<true>},
          {"ljust", padded<Align::left>},
          {"rjust", padded<Align::right>},
          {"center", padded<Align::center>},
          {"zfill", zfill},
          {"isalpha", all<is_letter>},
          {"isdigit", all<is_digit>},
          {"isdecimal", all<is_decimal>},
          {"isalnum", all<is_alphanumeric>},
          {"isspace", all<is_space>},
          {"isupper", cased<is_upper>},
          {"islower", cased<is_lower>},
          {"isascii", isascii},
          {"format", format_braces}};
}

}  // namespace minfer::jinja
