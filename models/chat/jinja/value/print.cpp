#include "models/chat/jinja/value/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace minfer::jinja {
namespace {

void print_quoted(Text& out, const Text& text) {
  const std::string_view bytes = text.bytes();
  const bool doubled =
      bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos;
  const char quote = doubled ? '"' : '\'';
  out.append({&quote, 1});
  append_escaped(out, text, [quote](char32_t c) -> std::string {
    if (c == '\\' || c == static_cast<char32_t>(quote)) return fmt::format("\\{}", static_cast<char>(c));
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    if (is_printable(c)) return {};
    const auto code = static_cast<uint32_t>(c);
    if (code < 0x100) return fmt::format("\\x{:02x}", code);
    return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
  });
  out.append({&quote, 1});
}

void print_sequence(Text& out, const Items& items, bool is_list) {
  out.append(is_list ? "[" : "(");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ");
    print_repr(out, items[i]);
  }
  if (!is_list && items.size() == 1) out.append(",");
  out.append(is_list ? "]" : ")");
}

void print_dict(Text& out, const Dict& dict) {
  out.append("{");
  for (const Dict::Entry& entry : dict.entries()) {
    if (&entry != &dict.entries().front()) out.append(", ");
    print_repr(out, entry.key);
    out.append(": ");
    print_repr(out, entry.value);
  }
  out.append("}");
}

/// Prints as Python's json.dumps, which templates of tool calls rely on to the byte.
class JsonPrinter {
 public:
  explicit JsonPrinter(const JsonStyle& style) : style_(style) {}

  Text print(const Value& value) {
    print_value(value, 0);
    return std::move(out_);
  }

 private:
  void print_value(const Value& value, size_t level) {
    const Rendering::Level nested;
    Rendering::step();
    if (const Text* text = value.text()) {
      print_string(*text);
    } else if (const Sequence* sequence = value.sequence()) {
      print_elements("[", sequence->items, "]", level,
                     [&](const Value& item) { print_value(item, level + 1); });
    } else if (const Dict* dict = value.dict()) {
      print_elements("{", sorted(*dict), "}", level, [&](const Dict::Entry* entry) {
        const Text* key = entry->key.text();
        print_string(key != nullptr ? *key : Text(scalar(entry->key)));
        out_.append(style_.key_separator);
        print_value(entry->value, level + 1);
      });
    } else {
      out_.append(scalar(value));
    }
  }

  /// Numbers, booleans and null; of other values the refusal.
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.boolean()) return *flag ? "true" : "false";
    if (const auto integer = value.integer()) return fmt::format("{}", *integer);
    if (const double* real = value.real()) {
      if (std::isnan(*real)) return "NaN";
      if (std::isinf(*real)) return *real < 0 ? "-Infinity" : "Infinity";
      return format_real(*real);
    }
    fail<TemplateError>("tojson: '{}' has no form in JSON", value.type_name());
  }

  Vector<const Dict::Entry*> sorted(const Dict& dict) const {
    Vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries())
      entries.push_back(&entry);
    if (style_.sort_keys) {
      std::ranges::stable_sort(entries, [](const Dict::Entry* a, const Dict::Entry* b) {
        return ordered(a->key, CompareOp::less, b->key);
      });
    }
    return entries;
  }

  template <class Elements, class Print>
  void print_elements(std::string_view open, const Elements& elements, std::string_view close, size_t level,
                      Print print_element) {
    out_.append(open);
    bool first = true;
    for (const auto& element : elements) {
      if (!std::exchange(first, false)) out_.append(style_.item_separator);
      start_line(level + 1);
      print_element(element);
    }
    if (!elements.empty()) start_line(level);
    out_.append(close);
  }

  void start_line(size_t level) {
    if (!style_.multiline) return;
    out_.append("\n");
    out_.repeat(style_.indent, level);
  }

  void print_string(const Text& text) {
    out_.append("\"");
    append_escaped(out_, text, [this](char32_t c) { return escape_of(c); });
    out_.append("\"");
  }

  std::string escape_of(char32_t c) const {
    constexpr std::u32string_view kEscaped = U"\"\\\n\r\t\f\b";
    if (const size_t at = kEscaped.find(c); at != kEscaped.npos) return {'\\', "\"\\nrtfb"[at]};
    const auto code = static_cast<uint32_t>(c);
    if (code >= 0x20 && (code < 0x7F || !style_.ensure_ascii)) return {};
    if (code < 0x10000) return fmt::format("\\u{:04x}", code);
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
  }

  const JsonStyle& style_;
  Text out_;
};

}  // namespace

std::string format_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto scientific = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string text(buffer, scientific.ptr);
  const int exponent = std::stoi(text.substr(text.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string plain(buffer, fixed.ptr);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

Text to_text(const Value& value) {
  if (const Text* text = value.text()) return *text;
  Text out;
  print(out, value);
  return out;
}

void print(Text& out, const Value& value) {
  if (const Text* text = value.text()) {
    out.append(*text);
  } else if (!value.is_undefined()) {
    Rendering::current()->printed_none |= value.is_none();
    print_repr(out, value);
  }
}

void print_repr(Text& out, const Value& value) {
  const Rendering::Level level;
  Rendering::step();
  if (const Text* text = value.text()) {
    print_quoted(out, *text);
  } else if (const bool* flag = value.boolean()) {
    out.append(*flag ? "True" : "False");
  } else if (const auto integer = value.integer()) {
    out.append(fmt::format("{}", *integer));
  } else if (const double* real = value.real()) {
    out.append(format_real(*real));
  } else if (const Sequence* sequence = value.sequence()) {
    print_sequence(out, sequence->items, value.is_list());
  } else if (const Dict* dict = value.dict()) {
    print_dict(out, *dict);
  } else if (const std::shared_ptr<Object> object = value.object()) {
    object->print(out);
  } else {
    out.append(value.type_name());  // None, Undefined
  }
}

Text to_json(const Value& value, const JsonStyle& style) {
  return JsonPrinter(style).print(value);
}

}  // namespace minfer::jinja
