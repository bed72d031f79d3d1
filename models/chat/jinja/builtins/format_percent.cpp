// `text % arguments`, Python's printf-style formatting.
#include <charconv>
#include <cmath>

#include "models/chat/jinja/value/number_format.h"
#include "models/chat/jinja/value/print.h"

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

}  // namespace

Value format_percent(const Text& format, const Value& arguments) {
  return PercentFormatter(format, arguments).run();
}

}  // namespace minfer::jinja
