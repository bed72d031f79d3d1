#include "models/chat/jinja/interpreter.h"

namespace minfer::jinja {
namespace {

/// Refers to a scope that in turn may hold the macro.
class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const MacroBody& body, std::shared_ptr<Scope> scope)
      : interpreter_(interpreter), body_(body), scope_(std::move(scope)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::string describe() const override { return fmt::format("<Macro '{}'>", body_.name); }
  std::optional<Value> attribute(std::string_view name) override {
    if (name == "name") return make_text(body_.name);
    return std::nullopt;
  }
  bool callable() const override { return true; }
  Value call(const Arguments& arguments) override {
    return interpreter_.call_macro(body_, scope_, arguments);
  }
  void release() override { scope_ = nullptr; }

 private:
  Interpreter& interpreter_;
  const MacroBody& body_;
  std::shared_ptr<Scope> scope_;
};

}  // namespace

Value make_macro(Interpreter& interpreter, const MacroBody& body, std::shared_ptr<Scope> scope) {
  const auto made = make_counted<Macro>(interpreter, body, std::move(scope));
  Rendering::keep(made);
  return Value(std::static_pointer_cast<Object>(made));
}

}  // namespace minfer::jinja
