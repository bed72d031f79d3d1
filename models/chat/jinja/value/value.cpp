#include "models/chat/jinja/value/value.h"

#include <algorithm>

#include "models/chat/jinja/value/object.h"

namespace minfer::jinja {
namespace {

constexpr size_t kIndexFrom = 16;  // entries of a dict from which on looking through them takes longer

std::shared_ptr<const Sequence> make_sequence(Items items, Sequence::Kind kind) {
  int depth = 0;
  for (const Value& item : items)
    depth = std::max(depth, item.depth());
  return make_counted<const Sequence>(
      Sequence{.items = std::move(items), .kind = kind, .depth = check_depth(depth + 1)});
}

bool is_hashable(const Value& value) {
  Rendering::step();
  if (value.dict() != nullptr) return false;
  if (value.sequence() == nullptr) return true;
  return !value.is_list() && std::ranges::all_of(value.sequence()->items, is_hashable);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::ranges::all_of(a.entries(), [&](const Dict::Entry& entry) {
    const Value* other = b.find(entry.key);
    return other != nullptr && equals(entry.value, *other);
  });
}

template <class T>
bool holds(CompareOp op, const T& a, const T& b) {
  if (op == CompareOp::less) return a < b;
  if (op == CompareOp::at_most) return a <= b;
  return op == CompareOp::greater ? a > b : a >= b;
}

/// Wide enough for every int and every float: the 64-bit significand of x86's extended type. Where long
/// double is narrower, ints beyond 2^53 compare with floats as rounded.
long double wide(const Value& value) {
  if (const auto integer = value.integer()) return static_cast<long double>(*integer);
  return static_cast<long double>(*value.real());
}

}  // namespace

int check_depth(int depth) {
  constexpr int kMaxDepth = 400;
  if (depth > kMaxDepth) fail<TemplateError>("values nested more than {} levels deep", kMaxDepth);
  return depth;
}

Value Value::undefined(std::string_view why) {
  Value value;
  value.data_ = Undefined(make_counted<const String>(why));
  return value;
}

std::optional<int64_t> Value::integer() const {
  if (const auto* integer = std::get_if<int64_t>(&data_)) return *integer;
  if (const bool* flag = boolean()) return *flag ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto whole = integer()) return static_cast<double>(*whole);
  if (const double* fraction = real()) return *fraction;
  return std::nullopt;
}

std::shared_ptr<Object> Value::object() const {
  const auto* shared = std::get_if<std::shared_ptr<Object>>(&data_);
  return shared == nullptr ? nullptr : *shared;
}

bool Value::is_list() const {
  return sequence() != nullptr && sequence()->kind == Sequence::Kind::list;
}

std::optional<size_t> Value::num_positions() const {
  if (sequence() != nullptr) return sequence()->items.size();
  const std::shared_ptr<Object> thing = object();
  return thing != nullptr && thing->has_positions() ? thing->length() : std::nullopt;
}

Value Value::at(size_t position) const {
  return sequence() != nullptr ? sequence()->items[position] : object()->at(position);
}

bool Value::truth() const {
  if (const auto value = number()) return *value != 0.0;
  if (const Text* string = text()) return !string->empty();
  if (const Sequence* items = sequence()) return !items->items.empty();
  if (const Dict* entries = dict()) return entries->size() != 0;
  if (const std::shared_ptr<Object> thing = object()) return thing->length() != size_t{0};
  return false;
}

int Value::depth() const {
  if (const Sequence* items = sequence()) return items->depth;
  if (const Dict* entries = dict()) return entries->depth();
  if (const auto* thing = std::get_if<std::shared_ptr<Object>>(&data_)) return (*thing)->depth();
  return 0;
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (boolean() != nullptr) return "bool";
  if (real() != nullptr) return "float";
  if (text() != nullptr) return text()->is_markup() ? "Markup" : "str";
  if (sequence() != nullptr) return is_list() ? "list" : "tuple";
  if (dict() != nullptr) return "dict";
  if (const std::shared_ptr<Object> thing = object()) return thing->type_name();
  return "int";
}

void Value::require_defined() const {
  if (const auto* undefined = std::get_if<Undefined>(&data_))
    fail<TemplateError>("{}", std::string_view(**undefined));
}

const void* Value::identity() const {
  if (text() != nullptr) return text();
  if (sequence() != nullptr) return sequence();
  if (dict() != nullptr) return dict();
  return object().get();
}

void Dict::set(Value key, Value value) {
  const Value* found = find(key);
  depth_ = std::max({depth_, check_depth(key.depth() + 1), check_depth(value.depth() + 1)});
  if (found != nullptr) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  entries_.push_back({std::move(key), std::move(value)});
  if (entries_.size() < kIndexFrom) return;
  for (size_t i = entries_.size() == kIndexFrom ? 0 : entries_.size() - 1; i < entries_.size(); ++i)
    if (const Text* text = entries_[i].key.text()) index_.emplace(text->bytes(), i);
}

const Value* Dict::find(std::string_view key) const {
  if (entries_.size() >= kIndexFrom) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &entries_[found->second].value;
  }
  const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
    const Text* text = entry.key.text();
    return text != nullptr && text->bytes() == key;
  });
  return found == entries_.end() ? nullptr : &found->value;
}

const Value* Dict::find(const Value& key) const {
  if (const Text* text = key.text()) return find(text->bytes());
  if (!is_hashable(key)) fail<TemplateError>("unhashable type: '{}' as a key of a dict", key.type_name());
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return equals(entry.key, key); });
  return found == entries_.end() ? nullptr : &found->value;
}

Value make_list(Items items) {
  return Value(make_sequence(std::move(items), Sequence::Kind::list));
}

Value make_tuple(Items items) {
  return Value(make_sequence(std::move(items), Sequence::Kind::tuple));
}

Value make_group(Value key, Value list) {
  return Value(make_sequence({std::move(key), std::move(list)}, Sequence::Kind::group));
}

Value make_dict(Dict dict) {
  return Value(make_counted<const Dict>(std::move(dict)));
}

Value make_text(std::string_view bytes) {
  return Value(Text(bytes));
}

bool equals(const Value& a, const Value& b) {
  Rendering::step();
  if (a.is_number() && b.is_number()) return wide(a) == wide(b);
  if (a.text() != nullptr && b.text() != nullptr) {
    Rendering::scan(std::min(a.text()->size(), b.text()->size()));
    return a.text()->bytes() == b.text()->bytes();
  }
  if (a.dict() != nullptr && b.dict() != nullptr) return equal_dicts(*a.dict(), *b.dict());
  if (a.is_undefined() || a.is_none())
    return a.is_none() == b.is_none() && a.is_undefined() == b.is_undefined();
  if (a.object() != nullptr && a.object() == b.object()) return true;
  // Lists, tuples and ranges are equal if their elements are, other objects only if they are the same.
  const std::optional<size_t> length = a.num_positions();
  const bool comparable =
      a.is_list() == b.is_list() && (a.object() == nullptr) == (b.object() == nullptr) && length;
  if (!comparable || length != b.num_positions()) return false;
  for (size_t i = 0; i < *length; ++i)
    if (!equals(a.at(i), b.at(i))) return false;
  return true;
}

bool ordered(const Value& a, CompareOp op, const Value& b) {
  Rendering::step();
  a.require_defined();
  b.require_defined();
  if (a.is_number() && b.is_number()) return holds(op, wide(a), wide(b));
  if (a.text() != nullptr && b.text() != nullptr) {  // UTF-8 orders as its code points do
    Rendering::scan(std::min(a.text()->size(), b.text()->size()));
    return holds(op, a.text()->bytes(), b.text()->bytes());
  }
  if (a.sequence() == nullptr || b.sequence() == nullptr || a.is_list() != b.is_list()) {
    fail<TemplateError>("'{}' not supported between '{}' and '{}'", kCompareSymbols[static_cast<size_t>(op)],
                        a.type_name(), b.type_name());
  }
  const Items& left = a.sequence()->items;
  const Items& right = b.sequence()->items;
  const auto [x, y] = std::ranges::mismatch(left, right, equals);
  if (x != left.end() && y != right.end()) return ordered(*x, op, *y);
  return holds(op, left.size(), right.size());
}

}  // namespace minfer::jinja
