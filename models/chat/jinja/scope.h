#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "models/chat/jinja/value/value.h"

namespace minfer::jinja {

/// The variables of a block, and the block around it. Names live in the template.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> outer) : outer_(std::move(outer)) {}

  /// Finds a name here or in an outer block; null if there is none.
  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get()) {
      Rendering::step(scope->variables_.size() / kNamesAStep);
      for (const auto& [known, value] : scope->variables_)
        if (known == name) return &value;
    }
    return nullptr;
  }
  /// Assigns in this block, even if an outer block has the name.
  void set(std::string_view name, Value value) {
    Rendering::step(variables_.size() / kNamesAStep);
    for (auto& [known, old] : variables_) {
      if (known != name) continue;
      old = std::move(value);
      return;
    }
    variables_.emplace_back(name, std::move(value));
  }
  void clear() { variables_.clear(); }

 private:
  static constexpr size_t kNamesAStep = 16;

  std::shared_ptr<Scope> outer_;
  Vector<std::pair<std::string_view, Value>> variables_;
};

}  // namespace minfer::jinja
