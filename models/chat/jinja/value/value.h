#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "models/chat/jinja/value/rendering.h"
#include "models/chat/jinja/value/text.h"

namespace minfer::jinja {

class Dict;
class Object;
class Value;
struct Sequence;
using Items = Vector<Value>;

/// Why a name, key or attribute is undefined. Its value prints as nothing, is false and empty; any other use fails with this.
using Undefined = std::shared_ptr<const String>;

/// Throws TemplateError if values would nest deeper than printing, comparing and destroying them may recurse. Returns `depth`.
int check_depth(int depth);

/// A value with Python's types: None, bool, int (of 64 bits), float, str, list, tuple, dict, or an object
/// (functions, ranges, iterators, namespaces ...). Copies share what they point to; lists, dicts and strings
/// never change after they are made, as in Jinja's immutable sandbox.
class Value {
 public:
  Value() = default;  ///< None
  explicit Value(bool boolean) : data_(boolean) {}
  explicit Value(int64_t integer) : data_(integer) {}
  explicit Value(double real) : data_(real) {}
  explicit Value(Text text) : data_(make_counted<const Text>(std::move(text))) {}
  explicit Value(std::shared_ptr<const Sequence> sequence) : data_(std::move(sequence)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  explicit Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  static Value undefined(std::string_view why);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  /// An int or a bool, which Python counts among the ints.
  std::optional<int64_t> integer() const;
  /// An int, a bool or a float.
  std::optional<double> number() const;
  bool is_number() const { return number().has_value(); }
  /// The value as this type; null if it has another type.
  const Text* text() const { return pointer<Text>(); }
  const Sequence* sequence() const { return pointer<Sequence>(); }
  const Dict* dict() const { return pointer<Dict>(); }
  bool is_list() const;
  bool is_tuple() const { return sequence() != nullptr && !is_list(); }
  /// The number of elements of a list, tuple or range; nothing for other types.
  std::optional<size_t> num_positions() const;
  /// An element of one of those, or of a view of a dict.
  Value at(size_t position) const;
  std::shared_ptr<Object> object() const;
  template <class T>
  std::shared_ptr<T> object_as() const {
    return std::dynamic_pointer_cast<T>(object());
  }

  bool truth() const;
  int depth() const;  ///< levels of values inside it
  /// Python's name of its type.
  std::string_view type_name() const;
  /// Throws the error that any use of an undefined value gives; nothing for other values.
  void require_defined() const;
  /// The address of the shared data, or null. Two values with the same address are the same object.
  const void* identity() const;

 private:
  template <class T>
  const T* pointer() const {
    const auto* shared = std::get_if<std::shared_ptr<const T>>(&data_);
    return shared == nullptr ? nullptr : shared->get();
  }

  std::variant<std::monostate, Undefined, bool, int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

/// A list or a tuple.
struct Sequence {
  enum class Kind { list, tuple, group };  ///< group: groupby's tuple, with the attributes grouper and list
  Items items;
  Kind kind = Kind::list;
  int depth = 1;
};

/// Keys in the order they came, as Python's dict. Built with `set`, then shared and never changed.
class Dict {
 public:
  struct Entry {
    Value key;
    Value value;
  };
  /// Adds or replaces. Throws TemplateError if the key is a list or dict. Keys that are no texts are compared
  /// one after the other, which is charged.
  void set(Value key, Value value);
  void set(Text key, Value value) { set(Value(std::move(key)), std::move(value)); }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  std::span<const Entry> entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

 private:
  Vector<Entry> entries_;
  std::map<std::string_view, size_t, std::less<>, Counted<std::pair<const std::string_view, size_t>>>
      index_;  // positions of the text keys, once there are many entries
  int depth_ = 1;
};

Value make_list(Items items);
Value make_tuple(Items items);
/// The result of groupby: a tuple (grouper, list).
Value make_group(Value key, Value list);
Value make_dict(Dict dict);
/// A text made by the template.
Value make_text(std::string_view bytes);

enum class CompareOp { equal, unequal, less, at_most, greater, at_least, in, not_in };
inline constexpr std::string_view kCompareSymbols[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};

/// Python's ==. Charges steps for the elements of containers.
bool equals(const Value& a, const Value& b);
/// Python's <, <=, > and >=; throws TemplateError if it orders no such types.
bool ordered(const Value& a, CompareOp op, const Value& b);

}  // namespace minfer::jinja
