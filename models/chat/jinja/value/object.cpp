#include "models/chat/jinja/value/object.h"

#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {
namespace {

constexpr size_t kMaxRange = 100'000;  // MAX_RANGE of Jinja's sandbox

class Generator : public Iterator {
 public:
  Generator(std::function<std::optional<Value>()> next, int depth) : next_(std::move(next)), depth_(depth) {}
  std::optional<Value> next() override {
    const Rendering::Level level;  // generators read from generators
    Rendering::step();
    return next_();
  }
  int depth() const override { return depth_; }

 private:
  std::function<std::optional<Value>()> next_;
  int depth_;
};

std::shared_ptr<Iterator> generate(std::function<std::optional<Value>()> next, int depth) {
  return make_counted<Generator>(std::move(next), check_depth(depth + 1));
}

std::shared_ptr<Iterator> iterate_positions(const Value& value, size_t length) {
  return generate(
      [value, length, position = size_t{0}]() mutable -> std::optional<Value> {
        return position == length ? std::nullopt : std::optional(value.at(position++));
      },
      value.depth());
}

std::shared_ptr<Iterator> iterate_characters(const Value& string) {
  return generate(
      [string, position = size_t{0}]() mutable -> std::optional<Value> {
        const Text& text = *string.text();
        if (position == text.size()) return std::nullopt;
        const size_t length = read_utf8(text.bytes().substr(position)).length;
        return Value(text.substr(std::exchange(position, position + length), length));
      },
      1);
}

class Function : public Object {
 public:
  Function(std::string_view name, std::function<Value(const Arguments&)> body, int depth)
      : name_(name), body_(std::move(body)), depth_(depth) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  void print(Text& out) const override { out.append(fmt::format("<built-in function {}>", name_)); }
  bool callable() const override { return true; }
  Value call(const Arguments& arguments) override { return body_(arguments); }
  int depth() const override { return depth_; }

 private:
  std::string name_;
  std::function<Value(const Arguments&)> body_;
  int depth_;
};

/// An object whose elements have positions, which [i] takes only if has_positions().
class Indexed : public Object, public std::enable_shared_from_this<Indexed> {
 public:
  std::shared_ptr<Iterator> elements() override {
    return iterate_positions(Value(shared_from_this()), length().value_or(0));
  }
};

class Range : public Indexed {
 public:
  Range(int64_t begin, int64_t end, int64_t step, size_t length)
      : begin_(begin), end_(end), step_(step), length_(length) {}
  std::string_view type_name() const override { return "range"; }
  void print(Text& out) const override {
    const std::string step = step_ == 1 ? "" : fmt::format(", {}", step_);
    out.append(fmt::format("range({}, {}{})", begin_, end_, step));
  }
  std::optional<size_t> length() const override { return length_; }
  bool has_positions() const override { return true; }
  Value at(size_t position) const override {  // unsigned: the way there may be longer than an int64_t
    return Value(
        static_cast<int64_t>(static_cast<uint64_t>(begin_) + position * static_cast<uint64_t>(step_)));
  }

 private:
  int64_t begin_;
  int64_t end_;
  int64_t step_;
  size_t length_;
};

class DictView : public Indexed {
 public:
  DictView(Value dict, ViewKind kind) : dict_(std::move(dict)), kind_(kind) {}
  std::string_view type_name() const override {
    return kind_ == ViewKind::keys ? "dict_keys" : kind_ == ViewKind::values ? "dict_values" : "dict_items";
  }
  void print(Text& out) const override {
    Items items;
    for (size_t i = 0; i < *length(); ++i)
      items.push_back(at(i));
    out.append(fmt::format("{}(", type_name()));
    print_repr(out, make_list(std::move(items)));
    out.append(")");
  }
  std::optional<size_t> length() const override { return dict_.dict()->size(); }
  Value at(size_t position) const override {
    const auto& [key, value] = dict_.dict()->entries()[position];
    if (kind_ == ViewKind::items) return make_tuple({key, value});
    return kind_ == ViewKind::keys ? key : value;
  }
  int depth() const override { return dict_.depth(); }

 private:
  Value dict_;
  ViewKind kind_;
};

class Namespace : public Object {
 public:
  explicit Namespace(Dict attributes) : attributes_(std::move(attributes)) {}
  std::string_view type_name() const override { return "Namespace"; }
  void print(Text& out) const override {
    out.append("<Namespace ");
    print_repr(out, make_dict(attributes_));
    out.append(">");
  }
  std::optional<Value> attribute(std::string_view name) override {
    const Value* found = attributes_.find(name);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  bool set_attribute(Text name, Value value) override {
    attributes_.set(std::move(name), std::move(value));
    return true;
  }
  void release() override { attributes_ = {}; }

 private:
  Dict attributes_;
};

}  // namespace

Rendering::~Rendering() {
  for (const std::shared_ptr<Object>& object : kept_)
    object->release();
  kept_.clear();
  current_ = outer_;
}

void Object::print(Text& out) const {
  out.append(fmt::format("<{} object>", type_name()));
}

Value Object::call(const Arguments&) {
  fail<TemplateError>("'{}' object is not callable", type_name());
}

Value make_generator(std::function<std::optional<Value>()> next, int depth) {
  return Value(generate(std::move(next), depth));
}

Value make_function(std::string_view name, std::function<Value(const Arguments&)> body, int depth) {
  return Value(make_counted<Function>(name, std::move(body), depth));
}

Value make_range(int64_t begin, int64_t end, int64_t step) {
  if (step == 0) fail<TemplateError>("range() with step 0, expected another");
  const auto distance = step > 0 ? static_cast<__int128>(end) - begin : static_cast<__int128>(begin) - end;
  const auto stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 length = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  if (length > static_cast<__int128>(kMaxRange))
    fail<TemplateError>("range() of more than {} elements", kMaxRange);
  return Value(make_counted<Range>(begin, end, step, static_cast<size_t>(length)));
}

Value make_dict_view(const Value& dict, ViewKind kind) {
  return Value(make_counted<DictView>(dict, kind));
}

Value make_namespace(Dict attributes) {
  const auto made = make_counted<Namespace>(std::move(attributes));
  Rendering::keep(made);
  return Value(made);
}

std::shared_ptr<Iterator> iterate(const Value& value) {
  if (value.sequence() != nullptr) return iterate_positions(value, value.sequence()->items.size());
  if (value.text() != nullptr) return iterate_characters(value);
  if (value.dict() != nullptr) return iterate(make_dict_view(value, ViewKind::keys));
  if (value.is_undefined()) return iterate(make_list({}));
  std::shared_ptr<Iterator> elements = value.object() == nullptr ? nullptr : value.object()->elements();
  if (elements == nullptr) fail<TemplateError>("'{}' object is not iterable", value.type_name());
  return elements;
}

bool is_iterable(const Value& value) {
  if (const std::shared_ptr<Object> object = value.object()) return object->elements() != nullptr;
  return value.sequence() != nullptr || value.text() != nullptr || value.dict() != nullptr ||
         value.is_undefined();
}

Items to_items(const Value& value) {
  const std::shared_ptr<Iterator> iterator = iterate(value);
  Items items;
  while (std::optional<Value> item = iterator->next())
    items.push_back(*std::move(item));
  return items;
}

std::optional<size_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Sequence* sequence = value.sequence()) return sequence->items.size();
  if (const Dict* dict = value.dict()) return dict->size();
  if (const std::shared_ptr<Object> object = value.object()) return object->length();
  if (const Text* text = value.text()) {
    Rendering::scan(text->size());
    return count_characters(text->bytes());
  }
  return std::nullopt;
}

}  // namespace minfer::jinja
