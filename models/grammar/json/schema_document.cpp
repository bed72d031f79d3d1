#include "models/grammar/json/schema_document.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "kernels/base/error.h"

namespace minfer {
namespace {

/// Without recursion: the depth is what is not known yet.
void refuse_deep(const nlohmann::ordered_json& root, const std::string& path) {
  std::vector<std::pair<const nlohmann::ordered_json*, int>> todo{{&root, 1}};
  while (!todo.empty()) {
    const auto [json, level] = todo.back();
    todo.pop_back();
    if (level > SchemaDocument::kMostLevels)
      fail<GrammarError>("{}nested more than {} levels deep", path, SchemaDocument::kMostLevels);
    if (!json->is_structured()) continue;
    for (const auto& child : *json)
      todo.emplace_back(&child, level + 1);
  }
}

/// "%41" to "A".
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      decoded += static_cast<char>(value);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

/// "~1" to "/", "~0" to "~".
std::string pointer_decoded(std::string_view token) {
  std::string decoded;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      decoded += token[++i] == '0' ? '~' : '/';
    } else {
      decoded += token[i];
    }
  }
  return decoded;
}

}  // namespace

SchemaDocument::SchemaDocument(const Json& root, std::string_view path) : path_(path) {
  refuse_deep(root, path_.empty() ? "" : path_ + ": ");
  places_.push_back({&root, -1, {}});
  by_json_.emplace(&root, kRoot);
}

SchemaDocument::Place SchemaDocument::part(Place parent, std::string_view name, const Json& json) {
  const auto [known, is_new] = by_json_.try_emplace(&json, static_cast<Place>(places_.size()));
  if (is_new) places_.push_back({&json, parent, std::string(name)});
  return known->second;
}

std::string SchemaDocument::name_of(Place place) const {
  std::vector<std::string_view> names;
  for (; place > kRoot; place = places_[static_cast<size_t>(place)].parent)
    names.push_back(places_[static_cast<size_t>(place)].name);
  std::string name = path_;
  for (auto part = names.rbegin(); part != names.rend(); ++part) {
    if (!name.empty()) name += '.';
    name += *part;
  }
  return name;
}

void SchemaDocument::refuse(Place place, std::string_view what) const {
  const std::string name = name_of(place);
  fail<GrammarError>("{}{}{}", name, name.empty() ? "" : ": ", what);
}

const SchemaDocument::Json* SchemaDocument::find(const Json& json, const std::string& name) {
  if (json.is_array()) {
    size_t index = 0;
    const char* end = name.data() + name.size();
    if (std::from_chars(name.data(), end, index).ptr != end || name.empty() || index >= json.size())
      return nullptr;
    return &json[index];
  }
  if (!json.is_object()) return nullptr;
  const auto [entry, is_new] = members_.try_emplace(&json);
  if (is_new) {
    for (const auto& [key, value] : json.get_ref<const Json::object_t&>())
      entry->second.emplace(key, &value);
  }
  const auto found = entry->second.find(name);
  return found == entry->second.end() ? nullptr : found->second;
}

SchemaDocument::Place SchemaDocument::follow(Place from, std::string_view pointer) {
  const Json* json = &at(kRoot);
  Place place = kRoot;
  while (!pointer.empty()) {
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    const std::string token = pointer_decoded(pointer.substr(1, end - 1));
    json = find(*json, token);
    if (json == nullptr) refuse(from, fmt::format("$ref: there is no {}", token));
    place = part(place, token, *json);
    pointer.remove_prefix(end);
  }
  return place;
}

void SchemaDocument::find_anchors() {
  if (!anchors_.empty()) return;
  anchors_.emplace("", &at(kRoot));
  std::vector<const Json*> todo{&at(kRoot)};
  while (!todo.empty()) {
    const Json* json = todo.back();
    todo.pop_back();
    if (!json->is_structured()) continue;
    for (const auto& [name, value] : json->items()) {
      if (json->is_object() && name == "$anchor" && value.is_string())
        anchors_.emplace(value.get_ref<const std::string&>(), json);
      todo.push_back(&value);
    }
  }
}

SchemaDocument::Place SchemaDocument::resolve(Place from, const Json& reference) {
  if (!reference.is_string()) refuse(from, "$ref: a string expected");
  const auto& text = reference.get_ref<const std::string&>();
  const auto known = references_.find(text);
  if (known != references_.end()) return known->second;
  if (!text.starts_with('#'))
    refuse(from, fmt::format("$ref: only references within the schema (#...) are supported, found {}", text));
  const std::string fragment = percent_decoded(std::string_view(text).substr(1));
  Place place = kRoot;
  if (fragment.starts_with('/')) {
    place = follow(from, fragment);
  } else {
    find_anchors();
    const auto anchor = anchors_.find(fragment);
    if (anchor == anchors_.end()) refuse(from, fmt::format("$ref: there is no $anchor {}", fragment));
    place = part(kRoot, text, *anchor->second);
  }
  references_.emplace(text, place);
  return place;
}

}  // namespace minfer
