#include "models/chat/jinja/value/html.h"

#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {

void append_html(Text& out, const Text& text) {
  append_escaped(out, text, [](char32_t c) -> std::string {
    switch (c) {
      case '&':
        return "&amp;";
      case '<':
        return "&lt;";
      case '>':
        return "&gt;";
      case '\'':
        return "&#39;";
      case '"':
        return "&#34;";
      default:
        return {};
    }
  });
}

}  // namespace minfer::jinja
