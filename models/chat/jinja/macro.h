#pragma once

#include "models/chat/jinja/interpreter.h"

namespace minfer::jinja {

/// A macro as a value, with the scope it was defined in. `interpreter` and `body` outlive the evaluation.
Value make_macro(Evaluation& evaluation, Interpreter& interpreter, const MacroBody& body,
                 std::shared_ptr<Scope> scope);

}  // namespace minfer::jinja
