#pragma once

#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {

/// namespace(): the one kind of object whose attributes a template may set. It may come to hold itself, so make it with make_namespace.
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
  void set(Text name, Value value) { attributes_.set(std::move(name), std::move(value)); }
  void release() override { attributes_ = {}; }

 private:
  Dict attributes_;
};

inline Value make_namespace(Dict attributes) {
  const auto made = make_counted<Namespace>(std::move(attributes));
  Rendering::keep(made);
  return Value(made);
}

}  // namespace minfer::jinja
