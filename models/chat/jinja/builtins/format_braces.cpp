// str.format, without specifications that hold fields of their own.
#include <charconv>

#include "models/chat/jinja/value/access.h"
#include "models/chat/jinja/value/number_format.h"
#include "models/chat/jinja/value/print.h"
#include "models/gguf/printable.h"

namespace minfer::jinja {
namespace {

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
      value = attribute ? get_attribute(value, name) : get_item(value, key_of(name));
      path.remove_prefix(attribute ? stop : stop + 1);
    }
    return value;
  }

  static std::optional<int64_t> parse_position(std::string_view text) {
    int64_t position = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), position);
    if (text.empty() || text.front() == '-' || parsed.ec != std::errc() ||
        parsed.ptr != text.data() + text.size())
      return std::nullopt;
    return position;
  }

  static Value key_of(std::string_view name) {
    const std::optional<int64_t> position = parse_position(name);
    return position ? Value(*position) : make_text(name);
  }

  Value read_first(std::string_view name) {
    std::optional<int64_t> position = parse_position(name);
    if (name.empty()) position = next_++;
    if (position) {
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

Value format_braces(const Text& format, const Arguments& arguments) {
  return BraceFormatter(format, arguments).run();
}

}  // namespace minfer::jinja
