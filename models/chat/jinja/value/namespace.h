#pragma once

#include "models/chat/jinja/value/object.h"

namespace minfer::jinja {

/// namespace(): the one kind of object whose attributes a template may set. It may come to hold itself, so make it with make_namespace.
class Namespace : public Object {
 public:
  explicit Namespace(Dict attributes) : attributes_(std::move(attributes)) {}
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(std::string_view name) override {
    const Value* found = attributes_.find(name);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  void set(Text name, Value value) { attributes_.set(std::move(name), std::move(value)); }
  const Dict& attributes() const { return attributes_; }
  void release() override { attributes_ = {}; }

 private:
  Dict attributes_;
};

inline std::shared_ptr<Namespace> make_namespace(Dict attributes) {
  auto made = make_counted<Namespace>(std::move(attributes));
  Rendering::keep(made);
  return made;
}

}  // namespace minfer::jinja
