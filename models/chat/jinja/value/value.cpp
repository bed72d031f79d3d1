#include "models/chat/jinja/value/value.h"

#include <algorithm>

#include "models/chat/jinja/value/object.h"

namespace minfer::jinja {
namespace {

constexpr size_t kIndexFrom = 16;  // entries of a dict from which on looking through them takes longer

int check_depth(int depth) {
  if (depth > kMaxValueDepth) fail<TemplateError>("values nested more than {} levels deep", kMaxValueDepth);
  return depth;
}

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
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr) return true;
  return sequence->kind != Sequence::Kind::list &&
         std::ranges::all_of(sequence->items, [&](const Value& item) { return is_hashable(item); });
}

bool equal_sequences(const Sequence& a, const Sequence& b) {
  const bool lists = a.kind == Sequence::Kind::list;
  if (lists != (b.kind == Sequence::Kind::list) || a.items.size() != b.items.size()) return false;
  return std::ranges::equal(a.items, b.items, [&](const Value& x, const Value& y) { return equals(x, y); });
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::ranges::all_of(a.entries(), [&](const Dict::Entry& entry) {
    const Value* other = b.find(entry.key);
    return other != nullptr && equals(entry.value, *other);
  });
}

/// Ranges are equal if their elements are, other objects if they are the same.
bool equal_objects(const std::shared_ptr<Object>& a, const std::shared_ptr<Object>& b) {
  if (a == b || !a->has_positions() || !b->has_positions()) return a == b;
  if (a->length() != b->length()) return false;
  for (size_t i = 0; i < *a->length(); ++i)
    if (!equals(a->at(i), b->at(i))) return false;
  return true;
}

template <class T>
bool holds(std::string_view operation, const T& a, const T& b) {
  if (operation == "<") return a < b;
  if (operation == "<=") return a <= b;
  if (operation == ">") return a > b;
  return a >= b;
}

/// Wide enough for every int and every float: the 64-bit significand of x86's extended type. Where long
/// double is narrower, ints beyond 2^53 compare with floats as rounded.
long double wide(const Value& value) {
  if (const auto integer = value.integer()) return static_cast<long double>(*integer);
  return static_cast<long double>(*value.real());
}

}  // namespace

Value Value::undefined(std::string_view why) {
  Value value;
  value.data_ = Undefined{make_counted<const String>(why)};
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
  if (const Sequence* items = sequence()) return items->kind == Sequence::Kind::list ? "list" : "tuple";
  if (dict() != nullptr) return "dict";
  if (const std::shared_ptr<Object> thing = object()) return thing->type_name();
  return "int";
}

void Value::require_defined() const {
  if (const auto* undefined = std::get_if<Undefined>(&data_))
    fail<TemplateError>("{}", std::string_view(*undefined->why));
}

const void* Value::identity() const {
  if (text() != nullptr) return text();
  if (sequence() != nullptr) return sequence();
  if (dict() != nullptr) return dict();
  return object().get();
}

void Dict::set(Value key, Value value) {
  const Value* found = find(key);
  put(found, std::move(key), std::move(value));
}

void Dict::set(Text key, Value value) {
  const Value* found = find(key.bytes());
  put(found, Value(std::move(key)), std::move(value));
}

/// `found` is what the key has now, or null.
void Dict::put(const Value* found, Value key, Value value) {
  depth_ = std::max({depth_, check_depth(key.depth() + 1), check_depth(value.depth() + 1)});
  if (found != nullptr) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  entries_.push_back({std::move(key), std::move(value)});
  if (entries_.size() == kIndexFrom) {
    for (size_t i = 0; i < kIndexFrom; ++i)
      index_entry(i);
  } else if (entries_.size() > kIndexFrom) {
    index_entry(entries_.size() - 1);
  }
}

void Dict::index_entry(size_t position) {
  if (const Text* text = entries_[position].key.text()) index_.emplace(text->bytes(), position);
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
  if (a.sequence() != nullptr && b.sequence() != nullptr)
    return equal_sequences(*a.sequence(), *b.sequence());
  if (a.dict() != nullptr && b.dict() != nullptr) return equal_dicts(*a.dict(), *b.dict());
  if (a.is_undefined() || a.is_none())
    return a.is_none() == b.is_none() && a.is_undefined() == b.is_undefined();
  return a.object() != nullptr && b.object() != nullptr && equal_objects(a.object(), b.object());
}

bool ordered(const Value& a, std::string_view operation, const Value& b) {
  Rendering::step();
  a.require_defined();
  b.require_defined();
  if (a.is_number() && b.is_number()) return holds(operation, wide(a), wide(b));
  if (a.text() != nullptr && b.text() != nullptr) {  // UTF-8 orders as its code points do
    Rendering::scan(std::min(a.text()->size(), b.text()->size()));
    return holds(operation, a.text()->bytes(), b.text()->bytes());
  }
  const Sequence* left = a.sequence();
  const Sequence* right = b.sequence();
  const bool comparable = left != nullptr && right != nullptr &&
                          (left->kind == Sequence::Kind::list) == (right->kind == Sequence::Kind::list);
  if (!comparable) {
    fail<TemplateError>("'{}' not supported between '{}' and '{}'", operation, a.type_name(), b.type_name());
  }
  const size_t common = std::min(left->items.size(), right->items.size());
  for (size_t i = 0; i < common; ++i) {
    if (!equals(left->items[i], right->items[i])) return ordered(left->items[i], operation, right->items[i]);
  }
  return holds(operation, left->items.size(), right->items.size());
}

}  // namespace minfer::jinja
