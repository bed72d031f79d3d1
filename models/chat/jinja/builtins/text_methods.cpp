// Python's methods of str.
#include <algorithm>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/builtins/number_format.h"
#include "models/chat/jinja/builtins/operators.h"
#include "models/chat/jinja/builtins/text_operations.h"

namespace minfer::jinja {
namespace {

template <bool from_right>
Value split_method(const Value& self, const Bound& given) {
  const int64_t count = given.integer(1, -1);
  if (given[0].is_none()) return make_list(split_words(*self.text(), count, from_right));
  const Text& separator = given.text(0);
  if (separator.empty()) fail<TemplateError>("split(): an empty separator");
  return make_list(split(*self.text(), separator.bytes(), count, from_right));
}

Value splitlines(const Value& self, const Bound& given) {
  return make_list(split_lines(*self.text(), given.truth(0)));
}

template <bool from_right>
Value partition(const Value& self, const Bound& given) {
  const Text& text = *self.text();
  const Text& separator = given.text(0);
  if (separator.empty()) fail<TemplateError>("partition(): an empty separator");
  Rendering::scan(text.size());
  const size_t found = find_part(text.bytes(), separator.bytes(), from_right);
  const Value none = make_text("");
  if (found == std::string_view::npos)
    return from_right ? make_tuple({none, none, self}) : make_tuple({self, none, none});
  const size_t behind = found + separator.size();
  return make_tuple({Value(text.substr(0, found)), Value(text.substr(found, separator.size())),
                     Value(text.substr(behind, text.size() - behind))});
}

Value replace_method(const Value& self, const Bound& given) {
  return Value(replace(*self.text(), given.text(0), given.text(1), given.integer(2, -1)));
}

Value join_with(const Value& self, const Bound& given) {
  const std::shared_ptr<Iterator> iterator = iterate(given[0]);
  Text out;
  for (bool any = false; const std::optional<Value> item = iterator->next(); any = true) {
    if (item->text() == nullptr)
      fail<TemplateError>("join(): an element is a '{}', expected a text", item->type_name());
    if (any) out.append(*self.text());
    out.append(*item->text());
  }
  return Value(std::move(out));
}

/// The characters of a text that the optional arguments 1 and 2 choose, as a slice does.
struct Window {
  size_t begin;  ///< in bytes
  std::optional<std::string_view>
      bytes;  ///< nothing: it begins behind the text's end, where not even "" is found
};

Window find_window(const Value& self, const Bound& given) {
  const std::string_view text = self.text()->bytes();
  if (given[1].is_none() && given[2].is_none()) return {0, text};
  const auto length = static_cast<int64_t>(count_characters(text));
  const auto clip = [length](int64_t i) { return i < 0 ? std::max<int64_t>(i + length, 0) : i; };
  const int64_t first = clip(std::max(given.optional_integer(1).value_or(0), -length));
  const int64_t last = std::min(clip(std::max(given.optional_integer(2).value_or(length), -length)), length);
  if (first > last) return {0, std::nullopt};
  size_t begin = 0;
  size_t end = 0;
  for (int64_t i = 0; i < last; ++i) {
    end += read_utf8(text.substr(end)).length;
    if (i + 1 == first) begin = end;
  }
  return {begin, text.substr(begin, end - begin)};
}

template <bool at_end>
Value affix(const Value& self, const Bound& given) {
  const Window window = find_window(self, given);
  const auto matches = [&](const Value& value) {
    if (value.text() == nullptr)
      fail<TemplateError>("startswith() or endswith() of a '{}', expected a text", value.type_name());
    const std::string_view part = value.text()->bytes();
    return window.bytes && (at_end ? window.bytes->ends_with(part) : window.bytes->starts_with(part));
  };
  if (given[0].is_tuple()) return Value(std::ranges::any_of(given[0].sequence()->items, matches));
  given[0].require_defined();
  return Value(matches(given[0]));
}

enum class Missing { minus_one, error };

template <bool from_right, Missing missing>
Value find_in(const Value& self, const Bound& given) {
  const std::string_view part = given.text(0).bytes();
  Rendering::scan(self.text()->size());
  const Window window = find_window(self, given);
  const size_t found = window.bytes ? find_part(*window.bytes, part, from_right) : std::string_view::npos;
  if (found != std::string_view::npos)
    return Value(
        static_cast<int64_t>(count_characters(self.text()->bytes().substr(0, window.begin + found))));
  if (missing == Missing::error) fail<TemplateError>("index(): the text does not hold what is looked for");
  return Value(int64_t{-1});
}

Value count(const Value& self, const Bound& given) {
  const std::string_view part = given.text(0).bytes();
  Rendering::scan(self.text()->size());
  const auto [begin, inside] = find_window(self, given);
  if (!inside) return Value(int64_t{0});
  if (part.empty()) return Value(static_cast<int64_t>(count_characters(*inside)) + 1);
  int64_t number = 0;
  for (size_t at = find_bytes(*inside, part); at != std::string_view::npos;
       at = find_bytes(*inside, part, at + part.size())) {
    Rendering::step();
    ++number;
  }
  return Value(number);
}

template <bool at_end>
Value without_affix(const Value& self, const Bound& given) {
  const Text& text = *self.text();
  const std::string_view affix = given.text(0).bytes();
  if (!(at_end ? text.bytes().ends_with(affix) : text.bytes().starts_with(affix))) return self;
  return Value(text.substr(at_end ? 0 : affix.size(), text.size() - affix.size()));
}

Value zfill(const Value& self, const Bound& given) {
  const Text& text = *self.text();
  const size_t sign = text.bytes().starts_with('-') || text.bytes().starts_with('+') ? 1 : 0;
  Text out = text.substr(0, sign);
  out.append(pad(text.substr(sign, text.size() - sign),
                 std::max<int64_t>(given.integer(0, 0), 0) - static_cast<int64_t>(sign), Text("0"),
                 Align::right));
  return Value(std::move(out));
}

/// All characters are of a kind, and there is one.
template <bool (*is_kind)(char32_t)>
Value all(const Value& self, const Bound&) {
  bool holds = !self.text()->empty();
  for_each_character(self.text()->bytes(), [&](char32_t c, size_t, size_t) { holds = holds && is_kind(c); });
  return Value(holds);
}

bool is_alphanumeric(char32_t c) {
  return is_word(c) && c != '_';
}

template <bool (*is_wanted)(char32_t)>
Value cased(const Value& self, const Bound&) {
  return Value(has_case(*self.text(), is_wanted));
}

Value isascii(const Value& self, const Bound&) {
  return Value(is_ascii(self.text()->bytes()));
}

Value format(const Value& self, const Bound& given) {
  return format_braces(*self.text(), given.all);
}

}  // namespace

std::span<const Builtin> text_methods() {
  static constexpr Builtin kMethods[] = {
      {"upper", {}, 0, mapped<to_upper>},
      {"lower", {}, 0, mapped<to_lower>},
      {"capitalize", {}, 0, mapped<to_capitalized>},
      {"title", {}, 0, mapped<to_title>},
      {"swapcase", {}, 0, mapped<to_swapped>},
      {"strip", {"_"}, 0, stripped<Side::both>},
      {"lstrip", {"_"}, 0, stripped<Side::left>},
      {"rstrip", {"_"}, 0, stripped<Side::right>},
      {"split", {"sep", "maxsplit"}, 0, split_method<false>},
      {"rsplit", {"sep", "maxsplit"}, 0, split_method<true>},
      {"splitlines", {"keepends"}, 0, splitlines},
      {"partition", {"_"}, 1, partition<false>},
      {"rpartition", {"_"}, 1, partition<true>},
      {"replace", {"_", "_", "_"}, 2, replace_method},
      {"join", {"_"}, 1, join_with},
      {"startswith", {"_", "_", "_"}, 1, affix<false>},
      {"endswith", {"_", "_", "_"}, 1, affix<true>},
      {"find", {"_", "_", "_"}, 1, find_in<false, Missing::minus_one>},
      {"rfind", {"_", "_", "_"}, 1, find_in<true, Missing::minus_one>},
      {"index", {"_", "_", "_"}, 1, find_in<false, Missing::error>},
      {"rindex", {"_", "_", "_"}, 1, find_in<true, Missing::error>},
      {"count", {"_", "_", "_"}, 1, count},
      {"removeprefix", {"_"}, 1, without_affix<false>},
      {"removesuffix", {"_"}, 1, without_affix<true>},
      {"ljust", {"_", "_"}, 1, padded<Align::left>},
      {"rjust", {"_", "_"}, 1, padded<Align::right>},
      {"center", {"_", "_"}, 1, padded<Align::center>},
      {"zfill", {"_"}, 1, zfill},
      {"isalpha", {}, 0, all<is_letter>},
      {"isdigit", {}, 0, all<is_digit>},
      {"isdecimal", {}, 0, all<is_decimal>},
      {"isalnum", {}, 0, all<is_alphanumeric>},
      {"isspace", {}, 0, all<is_space>},
      {"isupper", {}, 0, cased<is_upper>},
      {"islower", {}, 0, cased<is_lower>},
      {"isascii", {}, 0, isascii},
      {"format", {"*"}, 0, format},
  };
  return kMethods;
}

}  // namespace minfer::jinja
