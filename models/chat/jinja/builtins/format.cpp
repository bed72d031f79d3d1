// Python's two ways to format: `text % arguments`, and str.format without specifications that hold fields of their own.
#include <charconv>
#include <cmath>

#include "models/chat/jinja/builtins/number_format.h"
#include "models/chat/jinja/builtins/operators.h"
#include "models/chat/jinja/value/print.h"
#include "models/gguf/printable.h"

namespace minfer::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(const Text& format, const Value& arguments) : format_(format), arguments_(arguments) {
    if (arguments.is_tuple()) {
      values_ = arguments.sequence()->items;
    } else {
      values_.push_back(arguments);
      may_be_left_over_ = arguments.is_list() || arguments.dict() != nullptr;
    }
  }

  Value run() {
    const std::string_view bytes = format_.bytes();
    while (position_ < bytes.size()) {
      const size_t percent = std::min(bytes.find('%', position_), bytes.size());
      out_.append(format_, position_, percent - position_);
      position_ = percent + 1;
      if (percent < bytes.size()) convert();
    }
    if (next_ < values_.size() && !may_be_left_over_)
      fail<TemplateError>("%: {} values, of which the format takes {}", values_.size(), next_);
    return Value(std::move(out_));
  }

 private:
  char peek() const { return position_ < format_.size() ? format_.bytes()[position_] : '\0'; }
  bool take(char c) {
    if (peek() != c) return false;
    ++position_;
    return true;
  }

  const Value& next_value() {
    if (next_ == values_.size()) fail<TemplateError>("%: {} values, the format takes more", values_.size());
    return values_[next_++];
  }

  /// Digits, or a star for the next value.
  std::optional<int64_t> take_number() {
    if (take('*')) {
      const auto number = next_value().integer();
      if (!number) fail<TemplateError>("%*: expected an int");
      return number;
    }
    int64_t number = 0;
    const char* begin = format_.bytes().data() + position_;
    const auto parsed = std::from_chars(begin, format_.bytes().data() + format_.size(), number);
    if (parsed.ptr == begin || peek() == '-') return std::nullopt;
    if (parsed.ec != std::errc()) fail<TemplateError>("%: a width too large");
    position_ += static_cast<size_t>(parsed.ptr - begin);
    return number;
  }

  /// The value of "(name)", if that follows.
  std::optional<Value> take_named() {
    if (!take('(')) return std::nullopt;
    const size_t end = format_.bytes().find(')', position_);
    if (end == std::string::npos) fail<TemplateError>("%(: no ')' behind the name");
    const std::string_view name = format_.bytes().substr(position_, end - position_);
    if (arguments_.dict() == nullptr)
      fail<TemplateError>("%({}): the values are a '{}', expected a dict", name, arguments_.type_name());
    const Value* value = arguments_.dict()->find(name);
    if (value == nullptr) fail<TemplateError>("%({}): no such key", name);
    position_ = end + 1;
    return *value;
  }

  void convert() {
    const std::optional<Value> named = take_named();
    FormatSpec spec;
    const size_t flags_begin = position_;
    while (std::string_view("-0+ #").find(peek()) != std::string_view::npos)
      ++position_;
    const std::string_view flags = format_.bytes().substr(flags_begin, position_ - flags_begin);
    const auto has = [&](char flag) { return flags.find(flag) != std::string_view::npos; };
    spec.sign = has('+') ? '+' : has(' ') ? ' ' : '-';
    spec.alternate = has('#');
    spec.align = has('-') ? '<' : '>';
    spec.width = take_number().value_or(0);
    if (take('.')) spec.precision = take_number().value_or(0);
    while (take('l') || take('h') || take('L')) {
    }
    spec.type = peek();
    ++position_;
    if (spec.type == '%') return out_.append(format_, position_ - 1, 1);
    const Value& value = named ? *named : next_value();
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'c') return write_text(value, spec);
    if (has('0') && !has('-')) {
      spec.align = '=';
      spec.fill = "0";
    }
    write_number(value, spec);
  }

  void write_text(const Value& value, FormatSpec spec) {
    Text text;
    if (spec.type == 'r') {
      print_repr(text, value);
    } else {
      text = spec.type == 'c' ? character(value) : to_text(value);
    }
    spec.type = 's';
    out_.append(format_string(text, spec));
  }

  static Text character(const Value& value) {
    if (const Text* text = value.text(); text != nullptr && count_characters(text->bytes()) == 1)
      return *text;
    const auto code = value.integer();
    if (!code || *code < 0 || *code > 0x10FFFF) fail<TemplateError>("%c: expected a character or its number");
    std::string bytes;
    append_utf8(bytes, static_cast<char32_t>(*code));
    return Text(bytes);
  }

  void write_number(Value value, FormatSpec spec) {
    value.require_defined();
    if (!value.is_number()) fail<TemplateError>("%{}: '{}', expected a number", spec.type, value.type_name());
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    const bool whole = spec.type == 'd';
    if ((whole || spec.type == 'x' || spec.type == 'X' || spec.type == 'o') && spec.precision)
      fail<TemplateError>("%.{}{}: a precision, expected none for an int", *spec.precision, spec.type);
    if (const double* real = value.real(); whole && real != nullptr) {
      if (!(std::abs(*real) < 0x1p63)) fail<TemplateError>("%d: {} does not fit into 64 bits", *real);
      value = Value(static_cast<int64_t>(*real));
    }
    if (spec.type == '\0' || spec.type == 'n' || spec.type == 'b')
      fail<TemplateError>("%: expected a type of conversion");
    out_.append(format_number(value, spec));
  }

  const Text& format_;
  const Value& arguments_;
  Text out_;
  Items values_;
  size_t next_ = 0;
  size_t position_ = 0;
  bool may_be_left_over_ = false;
};

class BraceFormatter {
 public:
  BraceFormatter(const Text& format, const Arguments& arguments) : format_(format), arguments_(arguments) {}

  Value run() {
    const std::string_view bytes = format_.bytes();
    for (size_t at = 0; at < bytes.size();) {
      const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      out_.append(format_, at, brace - at);
      if (brace == bytes.size()) break;
      if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
        out_.append(format_, brace, 1);
        at = brace + 2;
        continue;
      }
      const size_t end = bytes.find('}', brace);
      if (bytes[brace] == '}' || end == std::string_view::npos)
        fail<TemplateError>("format(): a single '{}'", bytes[brace]);
      write_field(bytes.substr(brace + 1, end - brace - 1));
      at = end + 1;
    }
    return Value(std::move(out_));
  }

 private:
  /// "path!conversion:specification".
  void write_field(std::string_view field) {
    if (field.find('{') != std::string_view::npos) fail<TemplateError>("format(): a field within a field");
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec = colon < field.size() ? field.substr(colon + 1) : std::string_view();
    std::string_view path = field.substr(0, colon);
    const size_t mark = std::min(path.find('!'), path.size());
    const std::string_view conversion = mark < path.size() ? path.substr(mark + 1) : std::string_view();
    const Value value = read(path.substr(0, mark));
    if (!conversion.empty() && conversion != "s" && conversion != "r")
      fail<TemplateError>("format(): conversion '{}', expected r or s", printable(conversion));
    if (value.is_number() && !spec.empty() && conversion.empty())
      return out_.append(format_number(value, parse_format_spec(spec)));
    Text text;
    conversion == "r" ? print_repr(text, value) : print(text, value);
    if (conversion.empty() && value.text() == nullptr && !spec.empty())
      fail<TemplateError>("format(): a specification for '{}'", value.type_name());
    out_.append(format_string(text, parse_format_spec(spec)));
  }

  /// "name.attribute[key]...".
  Value read(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = read_first(path.substr(0, end));
    path.remove_prefix(end);
    while (!path.empty()) {
      const bool attribute = path.front() == '.';
      path.remove_prefix(1);
      const size_t stop = std::min(path.find_first_of(attribute ? ".[" : "]"), path.size());
      const std::string_view name = path.substr(0, stop);
      if (!attribute && stop == path.size()) fail<TemplateError>("format(): no ']' behind '['");
      value = attribute ? get_attribute(value, name) : get_item(value, index_or_name(name));
      path.remove_prefix(attribute ? stop : stop + 1);
    }
    return value;
  }

  Value read_first(std::string_view name) {
    const Value key = name.empty() ? Value(next_++) : index_or_name(name);
    if (const auto position = key.integer()) {
      if (*position >= static_cast<int64_t>(arguments_.positional.size()))
        fail<TemplateError>("format(): no argument {}, there are {}", *position,
                            arguments_.positional.size());
      return arguments_.positional[static_cast<size_t>(*position)];
    }
    for (const auto& [known, value] : arguments_.named)
      if (known == name) return value;
    fail<TemplateError>("format(): no argument named '{}'", printable(name));
  }

  const Text& format_;
  const Arguments& arguments_;
  Text out_;
  int64_t next_ = 0;
};

}  // namespace

Value format_percent(const Text& format, const Value& arguments) {
  return PercentFormatter(format, arguments).run();
}

Value format_braces(const Text& format, const Arguments& arguments) {
  return BraceFormatter(format, arguments).run();
}

}  // namespace minfer::jinja
