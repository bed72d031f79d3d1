#include "server/openai/unknown_fields.h"

#include <algorithm>

#include <fmt/format.h>

#include "models/gguf/printable.h"
#include "server/openai/api_error.h"

namespace minfer {
namespace {

constexpr size_t kMostNames = 16;
constexpr size_t kMostBytes = 64;  ///< of a name
constexpr const char* kAndMore = "...";

std::string full_name(std::string_view object_path, std::string_view name) {
  return object_path.empty() ? std::string(name) : fmt::format("{}.{}", object_path, name);
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-.:/@$").find(c) != std::string_view::npos;
}

/// "messages[12].b" -> "messages[].b": the same field of many messages is named once. The places in brackets
/// are the readers' own; brackets in a member's name count as any other odd character.
std::string shown(std::string_view object_path, std::string_view name) {
  std::string text;
  for (const char c : object_path) {
    const bool in_brackets = !text.empty() && text.back() == '[';
    if (!in_brackets || c == ']') text += c;
  }
  if (!text.empty()) text += '.';
  for (const char c : name.substr(0, kMostBytes + 1))
    text += is_plain(c) ? c : '?';
  if (name.empty()) text += "\"\"";
  if (text.size() > kMostBytes) text.replace(kMostBytes, std::string::npos, kAndMore);
  return text;
}

}  // namespace

void UnknownFields::add(std::string_view object_path, std::string_view name) {
  if (refuses_) throw unknown_field(full_name(object_path, printable(name)));
  keep(shown(object_path, name));
}

void UnknownFields::add_unused(std::string_view name) {
  const size_t dot = name.find('.');
  keep(dot == std::string_view::npos ? shown({}, name) : shown(name.substr(0, dot), name.substr(dot + 1)));
}

void UnknownFields::keep(std::string text) {
  if (names_.size() > kMostNames) return;
  if (std::ranges::find(names_, text) != names_.end()) return;
  names_.push_back(names_.size() == kMostNames ? kAndMore : std::move(text));
}

}  // namespace minfer
