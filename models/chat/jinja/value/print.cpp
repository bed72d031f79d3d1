#include "models/chat/jinja/value/print.h"

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

}  // namespace minfer::jinja
