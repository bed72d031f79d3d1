// The functions that every template knows.
#include <algorithm>
#include <array>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {
namespace {

Value call_range(const Value&, const Bound& given) {
  if (!given.has(1)) return make_range(0, given.integer(0, 0), 1);
  return make_range(given.integer(0, 0), given.integer(1, 0), given.integer(2, 1));
}

/// Entries as dict() takes them: a dict or pairs, then names.
Dict read_entries(const Arguments& arguments) {
  if (arguments.positional.size() > 1)
    fail<TemplateError>("dict() with {} arguments, expected at most 1", arguments.positional.size());
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& first = arguments.positional.front();
    for (const Value& pair :
         to_items(first.dict() == nullptr ? first : make_dict_view(first, ViewKind::items))) {
      const Items items = to_items(pair);
      if (items.size() != 2) fail<TemplateError>("dict(): an element of {} values, expected 2", items.size());
      dict.set(items[0], items[1]);
    }
  }
  for (const auto& [name, value] : arguments.named)
    dict.set(Text(name), value);
  return dict;
}

Value call_dict(const Value&, const Bound& given) {
  return make_dict(read_entries(given.all));
}

Value call_namespace(const Value&, const Bound& given) {
  return make_namespace(read_entries(given.all));
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
        expect_none("next", arguments);
        const size_t now = std::exchange(self->position_, (self->position_ + 1) % self->items().size());
        return self->items()[now];
      });
    }
    if (name != "reset") return std::nullopt;
    return make_function("reset", [self = shared_from_this()](const Arguments& arguments) {
      expect_none("reset", arguments);
      self->position_ = 0;
      return Value();
    });
  }

 private:
  const Items& items() const { return items_.sequence()->items; }
  Value items_;
  size_t position_ = 0;
};

Value call_cycler(const Value&, const Bound& given) {
  if (given.all.positional.empty() || !given.all.named.empty())
    fail<TemplateError>("cycler() expects the values to go through");
  return Value(make_counted<Cycler>(make_list(given.all.positional)));
}

/// joiner(separator): nothing at the first call, then the separator.
Value call_joiner(const Value&, const Bound& given) {
  const Value separator = given.get(0, make_text(", "));
  return make_function(
      "joiner",
      [separator, used = false](const Arguments& none) mutable {
        expect_none("joiner", none);
        return std::exchange(used, true) ? separator : make_text("");
      },
      separator.depth() + 1);
}

Value call_raise_exception(const Value&, const Bound& given) {
  fail<TemplateRaised>("{}", to_text(given[0]).bytes());
}

/// The format without what a time without a zone and without a fraction prints as nothing or zeros.
std::string plain_format(std::string_view format) {
  std::string plain;
  for (size_t i = 0; i < format.size(); ++i) {
    const std::string_view code = format.substr(i, format[i] == '%' ? 2 : 1);
    i += code.size() - 1;
    plain += code == "%f" ? "000000" : code == "%z" || code == "%Z" ? "" : code;
  }
  return plain;
}

Value call_strftime_now(const Value&, const Bound& given) {
  const Text& format = given.text(0);
  constexpr size_t kMaxFormat = 1000;
  if (format.size() > kMaxFormat)
    fail<TemplateError>("strftime_now() with a format of more than {} bytes", kMaxFormat);
  std::array<char, 100 * kMaxFormat> buffer;
  const std::string plain = plain_format(format.bytes());
  const std::tm& now = Rendering::current()->now;
  const size_t length = plain.empty() ? 0 : std::strftime(buffer.data(), buffer.size(), plain.c_str(), &now);
  return Value(Text({buffer.data(), length}, format.empty() ? Origin::source : format.origin_at(0)));
}

constexpr Builtin kGlobals[] = {{"range", {"_", "_", "_"}, 1, call_range},
                                {"namespace", {"*"}, 0, call_namespace},
                                {"dict", {"*"}, 0, call_dict},
                                {"cycler", {"*"}, 0, call_cycler},
                                {"joiner", {"sep"}, 0, call_joiner},
                                {"raise_exception", {"message"}, 1, call_raise_exception},
                                {"strftime_now", {"format"}, 1, call_strftime_now}};

}  // namespace

std::optional<Value> find_global(std::string_view name) {
  const auto* found = std::ranges::find(kGlobals, name, &Builtin::name);
  if (found == std::end(kGlobals)) return std::nullopt;
  return make_function(name, [found](const Arguments& arguments) { return (*found)(Value(), arguments); });
}

}  // namespace minfer::jinja
