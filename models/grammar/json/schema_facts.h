#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "models/grammar/json/schema_document.h"

namespace minfer {

/// Schemas of a document that a value has to satisfy all; none: any value will do.
using Schemas = std::vector<SchemaDocument::Place>;

/// Types of JSON, as bits. A number that is an integer is of kInteger, all other numbers are of kFraction.
using JsonTypes = uint32_t;
inline constexpr JsonTypes kNull = 1, kBoolean = 2, kObject = 4, kArray = 8, kString = 16, kInteger = 32,
                           kFraction = 64;
inline constexpr JsonTypes kAllJsonTypes = 127;

JsonTypes type_of(const nlohmann::ordered_json& value);
inline constexpr double kMostWritten = 1e18;  ///< numbers that limits restrict are below

/// Whether it is not known which number the text had: a double of 2^53 or more, of a whole number beyond 64 bits or with a point or exponent.
bool is_rounded(const nlohmann::ordered_json& value);
/// The same for equal values, as JSON Schema compares them: 1 and 1.0 are equal, the order of members does not count.
std::string identity_of(const nlohmann::ordered_json& value);

/// What schemas that are merged ask of a value, by the value's type: keywords say nothing of values of other types.
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

    /// Makes the stricter of both of it: as a lower limit, as an upper one.
    void raise(const Limit& limit);
    void lower(const Limit& limit);
  };
  /// Scalars by what they equal.
  struct Scalars {
    std::unordered_set<std::string> strings;
    std::vector<const Json*> numbers;  ///< ascending
    std::vector<bool> booleans;
    bool null = false;

    void add(const Json& value);
    void sort();  ///< before contains(), when all have been added
    bool contains(const Json& value) const;
  };
  /// A keyword's value, and the schema it is in.
  struct Keyword {
    Place place;
    const Json* value;
  };
  /// What one schema says of an object's members; null: nothing.
  struct ObjectShape {
    Place place;
    const Json* properties = nullptr;
    const Json* patterns = nullptr;
    const Json* additional = nullptr;
  };
  /// What one schema says of an array's items; null: nothing.
  struct ArrayShape {
    Place place;
    const Json* prefix = nullptr;  ///< prefixItems
    const Json* items = nullptr;   ///< of those behind the prefix
    // As drafts before 2020-12 have them.
    const Json* list = nullptr;        ///< items, if it is a list
    const Json* additional = nullptr;  ///< additionalItems: of those behind the list, without one nothing
  };

  Place place = SchemaDocument::kRoot;  ///< of the first schema, for messages
  JsonTypes types = kAllJsonTypes;
  std::optional<std::vector<const Json*>> values;  ///< none but these
  std::vector<const Scalars*> excluded;            ///< none of these

  Limit min, max;
  std::vector<Keyword> divisors;
  Counts length;
  std::vector<Keyword> patterns, formats;
  std::vector<Keyword> excluded_patterns;  ///< that do not match
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

/// Whether the value is within the limits that facts have for scalars, patterns and formats aside.
bool admits_scalar(const SchemaFacts& facts, const nlohmann::ordered_json& value);

}  // namespace minfer
