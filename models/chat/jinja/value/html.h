#pragma once

#include "models/chat/jinja/evaluation.h"

namespace minfer::jinja {

/// Appends `text` with & < > ' " replaced by their HTML entities.
void append_html(Text& out, const Text& text);

}  // namespace minfer::jinja
