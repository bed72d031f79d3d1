#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/grammar/json/json_text.h"
#include "models/grammar/json/schema_document.h"
#include "models/grammar/json/schema_facts.h"
#include "models/grammar/json/schema_merger.h"

namespace minfer {

/// Writes facts as texts. Values that may contain others become rules; each is made once for the same schemas. The rules wait in a list, so
/// that nothing recurses as deep as schemas refer to each other.
class SchemaWriter {
 public:
  using Expr = GrammarBuilder::Expr;
  using Json = SchemaDocument::Json;
  using Place = SchemaDocument::Place;

  SchemaWriter(JsonText& text, SchemaDocument& document)
      : text_(text), builder_(text.builder()), document_(document), merger_(builder_, document) {}

  /// Texts of values that satisfy all of the schemas.
  Expr write(const Schemas& schemas);

 private:
  struct Waiting {
    GrammarBuilder::Rule rule;
    std::vector<SchemaFacts> alternatives;
  };
  /// A member that objects list before any others.
  struct Member {
    Expr text;
    bool required;
  };

  Expr value(const Schemas& schemas);
  Expr value(const std::vector<SchemaFacts>& alternatives);
  Expr value(const SchemaFacts& facts);
  Expr listed_values(const SchemaFacts& facts);
  Expr number(const SchemaFacts& facts);
  Expr excluded_numbers(const SchemaFacts& facts, bool integers_only);
  Expr string(const SchemaFacts& facts);
  Expr pattern_texts(Place place, std::string_view keyword, const std::string& pattern);
  Expr format_texts(const std::string& format);
  bool restricts_text(const SchemaFacts& facts) const;
  Expr restricted_text(const SchemaFacts& facts);

  bool admits(const Schemas& schemas, const Json& value);
  bool admits(const SchemaFacts& facts, const Json& value);
  bool admits_items(const SchemaFacts& facts, const Json& array);
  bool admits_members(const SchemaFacts& facts, const Json& object);

  std::optional<Schemas> item_schemas(const SchemaFacts& facts, size_t index);
  Expr array(const SchemaFacts& facts);
  Expr different_items(const SchemaFacts& facts);
  std::optional<std::vector<const Json*>> listed_items(const SchemaFacts& facts, size_t index);
  Expr items(const std::vector<Expr>& prefix, Expr others, int64_t min, int64_t max);
  Expr object(const SchemaFacts& facts);
  std::vector<std::string> listed_names(const SchemaFacts& facts);
  Expr name_texts(const Schemas& schemas);
  Expr other_members(const SchemaFacts& facts, const std::vector<std::string>& listed);
  Expr members(const SchemaFacts& facts, const std::vector<Member>& listed, Expr others);
  Expr first_members(std::span<const Member> listed);
  Expr later_members(std::span<const Member> listed);
  Expr counted_members(const SchemaFacts& facts, const std::vector<Member>& listed, Expr others);

  JsonText& text_;
  GrammarBuilder& builder_;
  SchemaDocument& document_;
  SchemaMerger merger_;
  std::map<Schemas, Expr> known_;
  std::unordered_map<std::string, Expr> patterns_, formats_;  ///< that have been read
  std::vector<Waiting> waiting_;
};

}  // namespace minfer
