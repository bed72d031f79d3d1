#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/grammar/grammar_builder.h"

namespace minfer {

/// The parts of a JSON Schema with their places, for references between them and for messages.
class SchemaDocument {
 public:
  using Json = nlohmann::ordered_json;
  using Place = int32_t;

  /// The caller keeps both arguments alive. Throws GrammarError if the schema is nested too deeply.
  SchemaDocument(const Json& root, std::string_view path);

  static constexpr Place kRoot = 0;
  static constexpr int kMostLevels = 256;  ///< of JSON; so code that walks over it may recurse

  const Json& at(Place place) const { return *places_[static_cast<size_t>(place)].json; }
  /// The place of a part of the JSON at `parent`: its name, or "name[index]" for a part within that.
  Place part(Place parent, std::string_view name, const Json& json);
  Place part(Place parent, std::string_view name, std::string_view within, const Json& json) {
    return part(parent, fmt::format("{}.{}", name, within), json);
  }
  Place part(Place parent, std::string_view name, size_t index, const Json& json) {
    return part(parent, fmt::format("{}[{}]", name, index), json);
  }
  /// The target of "$ref": "#", "#" and a JSON pointer (RFC 6901), or an "$anchor". Throws GrammarError naming `from`.
  Place resolve(Place from, const Json& reference);

  /// A member of an object, or an item of an array by its digits; null: there is none. Uses an index that is made once.
  const Json* find(const Json& json, const std::string& name);

  std::string name_of(Place place) const;
  [[noreturn]] void refuse(Place place, std::string_view what) const;

 private:
  struct Entry {
    const Json* json;
    Place parent;
    std::string name;
  };
  using Members = std::unordered_map<std::string_view, const Json*>;

  Place follow(Place from, std::string_view pointer);
  void find_anchors();

  std::string path_;
  std::vector<Entry> places_;
  std::unordered_map<const Json*, Place> by_json_;
  std::unordered_map<const Json*, Members> members_;  ///< of objects that find() has searched
  std::unordered_map<std::string, Place> references_;
  std::unordered_map<std::string, const Json*> anchors_;
};

}  // namespace minfer
