#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "models/grammar/json/schema_document.h"

namespace minfer {

/// Schemas of a document; a value must satisfy all of them. Empty: any value is valid.
using Schemas = std::vector<SchemaDocument::Place>;

/// Types of JSON, as bits. Integers have type kInteger, all other numbers kFraction.
using JsonTypes = uint32_t;
inline constexpr JsonTypes kNull = 1, kBoolean = 2, kObject = 4, kArray = 8, kString = 16, kInteger = 32,
                           kFraction = 64;
inline constexpr JsonTypes kAllJsonTypes = 127;

JsonTypes type_of(const nlohmann::ordered_json& value);
inline constexpr double kMostWritten = 1e18;  ///< numbers that limits restrict are below this

/// True if the number in the text is not known: a double of 2^53 or more, of a whole number beyond 64 bits or with a point or exponent.
bool is_rounded(const nlohmann::ordered_json& value);
/// A text that is the same for equal values, as JSON Schema compares them: 1 and 1.0 are equal, the order of members does not count.
std::string identity_of(const nlohmann::ordered_json& value);

/// The requirements of merged schemas on a value, by the value's type: keywords do not apply to values of other types.
struct SchemaFacts {
  using Json = SchemaDocument::Json;
  using Place = SchemaDocument::Place;

  struct Counts {
    int64_t min = 0;
    int64_t max = -1;  ///< -1: any number

    bool hold(size_t count) const {
      return static_cast<int64_t>(count) >= min && (max < 0 || static_cast<int64_t>(count) <= max);
    }
    void raise(int64_t least) { min = std::max(min, least); }
    void lower(int64_t most) { max = max < 0 ? most : std::min(max, most); }
  };
  struct Limit {
    const Json* number = nullptr;
    bool excluded = false;

    /// Makes this the stricter of both limits: as a lower limit; as an upper limit.
    void raise(const Limit& limit);
    void lower(const Limit& limit);
  };
  /// Scalars, found by equality.
  struct Scalars {
    std::unordered_set<std::string> identities;
    std::vector<std::string> strings;
    std::vector<const Json*> numbers;

    void add(const Json& value);
    bool contains(const Json& value) const { return identities.contains(identity_of(value)); }
  };
  /// A keyword's value, and the schema it is in.
  struct Keyword {
    Place place;
    const Json* value;
  };
  /// One schema's constraints on an object's members; null: none.
  struct ObjectShape {
    Place place;
    const Json* properties = nullptr;
    const Json* patterns = nullptr;
    const Json* additional = nullptr;
  };
  /// One schema's constraints on an array's items; null: none.
  struct ArrayShape {
    Place place;
    const Json* prefix = nullptr;  ///< prefixItems
    const Json* items = nullptr;   ///< of items behind the prefix
    // As in drafts before 2020-12.
    const Json* list = nullptr;        ///< items, if it is a list
    const Json* additional = nullptr;  ///< additionalItems: of items behind the list; ignored without a list
  };

  Place place = SchemaDocument::kRoot;  ///< of the first schema, for messages
  JsonTypes types = kAllJsonTypes;
  std::optional<std::vector<const Json*>> values;  ///< only these values
  std::vector<const Scalars*> excluded;            ///< not these values

  Limit min, max;
  std::vector<Keyword> divisors;
  Counts length;
  std::vector<Keyword> patterns, formats;
  std::vector<Keyword> excluded_patterns;  ///< patterns that must not match
  Counts items;
  std::vector<ArrayShape> arrays;
  std::optional<Place> unique_items;  ///< the schema that asks for it
  bool no_other_items = false;        ///< than shapes say something of
  Counts members;
  std::vector<ObjectShape> objects;
  std::vector<std::string> required;
  Schemas names;                  ///< of all names
  bool no_other_members = false;  ///< than shapes say something of

  bool never() const { return types == 0; }
  bool excludes(const Json& scalar) const;
};

/// True if the value is within the limits of the facts for scalars, patterns and formats aside.
bool admits_scalar(const SchemaFacts& facts, const nlohmann::ordered_json& value);

}  // namespace minfer
