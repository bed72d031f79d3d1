#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/chat/jinja/value/value.h"

namespace minfer::jinja {

class Iterator;

/// The arguments of a call.
struct Arguments {
  Items positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A value with its own behaviour. The defaults are those of an object without any.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  /// Appends the text of str().
  virtual void print(Text& out) const;
  virtual std::optional<Value> attribute(std::string_view) { return std::nullopt; }
  /// False: the template may not set attributes.
  virtual bool set_attribute(Text, Value) { return false; }
  virtual bool callable() const { return false; }
  virtual Value call(const Arguments&);
  /// Null: cannot be iterated.
  virtual std::shared_ptr<Iterator> elements() { return nullptr; }
  virtual std::optional<size_t> length() const { return std::nullopt; }
  /// True if [i] takes element i of length(), which at() gives.
  virtual bool has_positions() const { return false; }
  virtual Value at(size_t) const { return Value(); }
  virtual int depth() const { return 1; }
  /// Releases the objects that it refers to, so that objects that refer to each other can be freed.
  virtual void release() {}
};

/// An object that gives its elements once.
class Iterator : public Object, public std::enable_shared_from_this<Iterator> {
 public:
  virtual std::optional<Value> next() = 0;
  std::string_view type_name() const override { return "generator"; }
  std::shared_ptr<Iterator> elements() override { return shared_from_this(); }
};

/// An iterator; a function makes its elements on demand, like Python's generators. `depth`: depth of the values that the function holds.
Value make_generator(std::function<std::optional<Value>()> next, int depth);

/// A function of the environment or a method with its object.
Value make_function(std::string_view name, std::function<Value(const Arguments&)> body, int depth = 1);

/// range(begin, end, step); throws TemplateError for step 0 and more than 100,000 elements, as the sandbox.
Value make_range(int64_t begin, int64_t end, int64_t step);

/// dict.keys(), .values() and .items().
enum class ViewKind { keys, values, items };
Value make_dict_view(const Value& dict, ViewKind kind);

/// namespace(): the one kind of object whose attributes a template may set. It may come to hold itself.
Value make_namespace(Dict attributes);

/// An iterator over the elements; throws TemplateError if the value has none. Text gives its characters, a dict its keys.
std::shared_ptr<Iterator> iterate(const Value& value);
bool is_iterable(const Value& value);
Items to_items(const Value& value);
/// Python's len(); nothing if the value has none.
std::optional<size_t> length_of(const Value& value);

}  // namespace minfer::jinja
