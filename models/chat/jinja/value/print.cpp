#include "models/chat/jinja/value/print.h"

#include <charconv>
#include <cmath>

#include "models/chat/jinja/value/namespace.h"

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

void print_items(Text& out, const Items& items) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.append(", ");
    first = false;
    print_repr(out, item);
  }
}

void print_sequence(Text& out, const Sequence& sequence) {
  const bool list = sequence.kind == Sequence::Kind::list;
  out.append(list ? "[" : "(");
  print_items(out, sequence.items);
  if (!list && sequence.items.size() == 1) out.append(",");
  out.append(list ? "]" : ")");
}

void print_dict(Text& out, const Dict& dict) {
  out.append("{");
  bool first = true;
  for (const Dict::Entry& entry : dict.entries()) {
    if (!first) out.append(", ");
    first = false;
    print_repr(out, entry.key);
    out.append(": ");
    print_repr(out, entry.value);
  }
  out.append("}");
}

void print_object(Text& out, const Value& value) {
  for (const ViewKind kind : {ViewKind::keys, ViewKind::values, ViewKind::items}) {
    const std::optional<Value> dict = viewed_dict(value, kind);
    if (!dict) continue;
    out.append(fmt::format("{}([", value.type_name()));
    for (size_t i = 0; i < dict->dict()->size(); ++i) {
      if (i > 0) out.append(", ");
      print_repr(out, value.object()->at(i));
    }
    out.append("])");
    return;
  }
  if (const auto space = value.object_as<Namespace>()) {
    out.append("<Namespace ");
    print_dict(out, space->attributes());
    out.append(">");
    return;
  }
  out.append(value.object()->describe());
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
    print_sequence(out, *sequence);
  } else if (const Dict* dict = value.dict()) {
    print_dict(out, *dict);
  } else if (value.object() != nullptr) {
    print_object(out, value);
  } else {
    out.append(value.type_name());  // None, Undefined
  }
}

}  // namespace minfer::jinja
