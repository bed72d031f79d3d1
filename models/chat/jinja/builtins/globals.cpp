// The functions that every template knows.
#include <array>
#include <unordered_map>

#include "models/chat/jinja/builtins/arguments.h"
#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/value/namespace.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {
namespace {

Value call_range(const Arguments& arguments) {
  const Bound bound("range", arguments, {"", "", ""}, 1);
  if (!bound.has(1)) return make_range(0, bound.integer(0, 0), 1);
  return make_range(bound.integer(0, 0), bound.integer(1, 0), bound.integer(2, 1));
}

/// Entries as dict() takes them: a dict or pairs, then names.
Dict read_entries(const Arguments& arguments) {
  Dict dict;
  const auto add = [&](Value key, Value value) { dict.set(std::move(key), std::move(value)); };
  if (arguments.positional.size() > 1)
    fail<TemplateError>("dict() with {} arguments, expected at most 1", arguments.positional.size());
  if (!arguments.positional.empty()) {
    const Value& first = arguments.positional.front();
    if (const Dict* source = first.dict()) {
      for (const Dict::Entry& entry : source->entries())
        add(entry.key, entry.value);
    } else {
      for (const Value& pair : to_items(first)) {
        const Items items = to_items(pair);
        if (items.size() != 2)
          fail<TemplateError>("dict(): an element of {} values, expected 2", items.size());
        add(items[0], items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named)
    add(make_text(name), value);
  return dict;
}

Value call_dict(const Arguments& arguments) {
  return make_dict(read_entries(arguments));
}

Value call_namespace(const Arguments& arguments) {
  return Value(std::static_pointer_cast<Object>(make_namespace(read_entries(arguments))));
}

/// cycler(a, b, ...): one after the other, from the first again.
class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(Value items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  int depth() const override { return items_.depth() + 1; }
  std::optional<Value> attribute(std::string_view name) override {
    if (name == "current") return items()[position_];
    if (name == "next") {
      return make_function("next", [self = shared_from_this()](const Arguments& arguments) {
        Bound("next", arguments, {});
        const size_t now = self->position_;
        self->position_ = (now + 1) % self->items().size();
        return self->items()[now];
      });
    }
    if (name != "reset") return std::nullopt;
    return make_function("reset", [self = shared_from_this()](const Arguments& arguments) {
      Bound("reset", arguments, {});
      self->position_ = 0;
      return Value();
    });
  }

 private:
  const Items& items() const { return items_.sequence()->items; }
  Value items_;
  size_t position_ = 0;
};

Value call_cycler(const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty())
    fail<TemplateError>("cycler() expects the values to go through");
  return Value(std::static_pointer_cast<Object>(make_counted<Cycler>(make_list(arguments.positional))));
}

/// joiner(separator): nothing at the first call, then the separator.
Value call_joiner(const Arguments& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  const Value separator = bound.has(0) ? bound[0] : make_text(", ");
  bool used = false;
  return make_function(
      "joiner",
      [separator, used](const Arguments& none) mutable {
        Bound("joiner", none, {});
        return std::exchange(used, true) ? separator : make_text("");
      },
      separator.depth() + 1);
}

Value call_raise_exception(const Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  fail<TemplateRaised>("{}", to_text(bound[0]).bytes());
}

/// The format without what a time without a zone and without a fraction prints as nothing or zeros.
std::string plain_format(std::string_view format) {
  std::string plain;
  for (size_t i = 0; i < format.size(); ++i) {
    const char kind = format[i] == '%' && i + 1 < format.size() ? format[i + 1] : '\0';
    if (kind == '\0') {
      plain += format[i];
      continue;
    }
    ++i;
    if (kind == 'f') {
      plain += "000000";
    } else if (kind != 'z' && kind != 'Z') {
      plain += '%';
      plain += kind;
    }
  }
  return plain;
}

Value call_strftime_now(const Arguments& arguments) {
  const Text& format = Bound("strftime_now", arguments, {"format"}, 1).text(0);
  constexpr size_t kMaxFormat = 1000;
  if (format.size() > kMaxFormat)
    fail<TemplateError>("strftime_now() with a format of more than {} bytes", kMaxFormat);
  std::array<char, 100 * kMaxFormat> buffer;
  const std::string plain = plain_format(format.bytes());
  const size_t length =
      plain.empty() ? 0
                    : std::strftime(buffer.data(), buffer.size(), plain.c_str(), &Rendering::current()->now);
  return Value(
      Text(std::string(buffer.data(), length), format.empty() ? Origin::source : format.origin_at(0)));
}

}  // namespace

std::optional<Value> find_global(std::string_view name) {
  using Global = Value (*)(const Arguments&);
  static const std::unordered_map<std::string_view, Global> globals{
      {"range", call_range},
      {"namespace", call_namespace},
      {"dict", call_dict},
      {"cycler", call_cycler},
      {"joiner", call_joiner},
      {"raise_exception", call_raise_exception},
      {"strftime_now", call_strftime_now},
  };
  const auto found = globals.find(name);
  if (found == globals.end()) return std::nullopt;
  return make_function(found->first, found->second);
}

}  // namespace minfer::jinja
