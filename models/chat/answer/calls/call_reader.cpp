#include "models/chat/answer/calls/call_reader.h"

#include <fmt/format.h>

#include "models/gguf/printable.h"

namespace minfer::answer {

CallReader::Step CallReader::fail_at(std::string_view expected, char found) {
  problem_ = fmt::format("expected {}, found '{}'", expected, printable(std::string_view(&found, 1)));
  return Step::failed;
}

CallReader::Step CallReader::end_before(std::string_view unread) {
  unread_ = unread;
  return Step::ended;
}

}  // namespace minfer::answer
