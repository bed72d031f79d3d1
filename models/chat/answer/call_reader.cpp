#include "models/chat/answer/call_reader.h"

#include <fmt/format.h>

#include "models/gguf/printable.h"

namespace minfer::answers {

CallReader::Step CallReader::fail_at(std::string_view expected, char found) {
  problem_ = fmt::format("expected {}, found '{}'", expected, printable(std::string_view(&found, 1)));
  return Step::failed;
}

CallReader::Step CallReader::end_before(std::string_view unread) {
  unread_ = unread;
  return Step::ended;
}

void CallReader::give_key(std::string_view key) {
  std::string text = has_key_ ? ", \"" : "{\"";
  for (const char k : key)
    append_json_escaped(k, text);
  out_.arguments(text + "\": ");
  has_key_ = true;
}

void CallReader::end_call() {
  out_.arguments(has_key_ ? "}" : "{}");
  out_.end_call();
  has_key_ = false;
}

}  // namespace minfer::answers
