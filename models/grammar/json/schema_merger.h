#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "models/grammar/grammar_builder.h"
#include "models/grammar/json/schema_document.h"
#include "models/grammar/json/schema_facts.h"

namespace minfer {

/// Merges schemas into facts: "allOf", "$ref" and keywords side by side into the same ones, "anyOf", "oneOf" and what depends on a member
/// into alternatives, each with all else that holds. So only facts are left to be written as a grammar.
class SchemaMerger {
 public:
  using Json = SchemaDocument::Json;
  using Place = SchemaDocument::Place;

  SchemaMerger(GrammarBuilder& builder, SchemaDocument& document) : builder_(builder), document_(document) {}

  /// A value satisfies the schemas if it satisfies the facts of one of these. Throws GrammarError naming the place and the keyword that cannot
  /// be honoured.
  std::vector<SchemaFacts> alternatives(const Schemas& schemas);
  /// What a member of this name has to satisfy.
  Schemas member_schemas(const SchemaFacts& facts, const std::string& name);
  /// The same schemas, less those that allow anything, and what is referred to for what does nothing but refer to it: a recursive schema
  /// comes back to schemas that are known.
  Schemas simplified(const Schemas& schemas);

 private:
  struct Group {  ///< alternatives that are still to be tried
    Place place;
    const std::vector<Schemas>* branches;  ///< each of schemas that hold together
    bool only_one;                         ///< of them may hold: "oneOf"
    int origin;
  };
  struct Partial {
    SchemaFacts facts;
    Schemas merged;
    std::vector<Group> groups;
    size_t num_tried = 0;  ///< of the groups
  };
  struct Keyword;
  using Handler = void (SchemaMerger::*)(Partial&, const Keyword&);
  struct Keyword {
    Place place;  ///< of the schema
    std::string_view name;
    const Json& value;
    int origin;
  };
  struct Origin {  ///< a schema and the one that brought it to the same value
    Place place;
    int parent;
    int depth;
  };

  Place followed(Place place);
  bool is_in_pattern(Place schema, const std::string& pattern, const std::string& name);
  static Handler handler_of(std::string_view name);
  static size_t size_of(const Partial& partial);
  void merge(Partial& partial, Place place, int origin);
  void expand(Partial partial, std::vector<SchemaFacts>& out);
  void refuse_overlap(const Group& group, const std::vector<SchemaFacts>& facts,
                      const std::vector<size_t>& branch_ends, size_t first);
  bool are_disjoint(const SchemaFacts& a, const SchemaFacts& b);
  bool have_disjoint_members(const SchemaFacts& a, const SchemaFacts& b);

  void ignore(Partial& partial, const Keyword& keyword);
  void merge_id(Partial& partial, const Keyword& keyword);
  void merge_nullable(Partial& partial, const Keyword& keyword);
  void merge_names(Partial& partial, const Keyword& keyword);
  void merge_type(Partial& partial, const Keyword& keyword);
  void merge_values(Partial& partial, const Keyword& keyword);
  void merge_limit(Partial& partial, const Keyword& keyword);
  void merge_count(Partial& partial, const Keyword& keyword);
  void merge_divisor(Partial& partial, const Keyword& keyword);
  void merge_pattern(Partial& partial, const Keyword& keyword);
  void merge_format(Partial& partial, const Keyword& keyword);
  void merge_object(Partial& partial, const Keyword& keyword);
  void merge_array(Partial& partial, const Keyword& keyword);
  void merge_required(Partial& partial, const Keyword& keyword);
  void merge_unevaluated(Partial& partial, const Keyword& keyword);
  void merge_false(Partial& partial, const Keyword& keyword);
  void merge_reference(Partial& partial, const Keyword& keyword);
  void merge_all(Partial& partial, const Keyword& keyword);
  void add_group(Partial& partial, const Keyword& keyword);
  void merge_not(Partial& partial, const Keyword& keyword);
  void add_dependents(Partial& partial, const Keyword& keyword);
  Place made(Place parent, std::string_view name, Json schema);
  std::string identity(const Json& value) const;
  std::unordered_set<std::string> identities(const std::vector<const Json*>& values) const;
  bool have_disjoint_values(const SchemaFacts& a, const SchemaFacts& b) const;
  void expect(bool condition, const Keyword& keyword, std::string_view expected) const;

  GrammarBuilder& builder_;
  SchemaDocument& document_;
  std::vector<Origin> origins_;
  std::unordered_map<const Json*, std::vector<Schemas>> branches_;  ///< of groups, by what they are read from
  std::unordered_map<const Json*, Place> complements_;              ///< of what "not" has
  std::deque<Json> made_;                                           ///< schemas that say what keywords mean
  std::unordered_map<std::string, GrammarBuilder::Expr> name_patterns_;  ///< that have been read
  size_t num_given_ = 0;  ///< schemas that alternatives() was asked about
  int nesting_ = 0;       ///< of are_disjoint()
};

}  // namespace minfer
