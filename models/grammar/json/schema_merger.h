#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "models/grammar/grammar_builder.h"
#include "models/grammar/json/schema_document.h"
#include "models/grammar/json/schema_facts.h"

namespace minfer {

/// Merges schemas into facts. "allOf", "$ref" and adjacent keywords go into the same facts. "anyOf", "oneOf", "if" and dependencies on a
/// member become alternatives, each with everything else that holds. "not" becomes facts and alternatives too. So only facts remain to be
/// written as a grammar.
class SchemaMerger {
 public:
  using Json = SchemaDocument::Json;
  using Place = SchemaDocument::Place;

  SchemaMerger(GrammarBuilder& builder, SchemaDocument& document) : builder_(builder), document_(document) {}

  /// A value satisfies the schemas if it satisfies the facts of one of these. Throws GrammarError naming the place and the keyword that cannot
  /// be honoured.
  std::vector<SchemaFacts> alternatives(const Schemas& schemas);
  /// The schemas that a member of this name must satisfy.
  Schemas member_schemas(const SchemaFacts& facts, const std::string& name);
  /// The same schemas, without schemas that allow anything; a schema that is only a reference becomes its target. So a recursive schema
  /// comes back to schemas that are known.
  Schemas simplified(const Schemas& schemas);

 private:
  enum class GroupKind : uint8_t {
    any,
    one,     ///< exactly one branch holds: "oneOf"
    pruned,  ///< any; branches that contradict what holds already are many, and looked for
  };
  struct Group {  ///< alternatives still to be tried
    Place place;
    const std::vector<Schemas>* branches;  ///< each of schemas that hold together
    GroupKind kind;
    int origin;
  };
  struct Partial {
    SchemaFacts facts;
    Schemas merged;
    std::vector<Group> groups;
    size_t num_tried = 0;         ///< of the groups
    bool has_complement = false;  ///< its properties and items do not count as evaluated
  };
  struct Keyword;
  using Handler = void (SchemaMerger::*)(Partial&, const Keyword&);
  struct Keyword {
    Place place;  ///< of the schema
    std::string_view name;
    const Json& value;
    int origin;
  };
  /// The values that are invalid by the schema at a place: by the whole schema, or by one keyword.
  struct Complement {
    Place place;
    std::string_view name;  ///< of the keyword
    const Json* value;      ///< of the keyword; null: all of the schema
  };
  struct Handlers {  ///< of a keyword
    Handler merge;
    Handler exclude = &SchemaMerger::exclude_nothing;
  };
  struct ExcludedValues {
    SchemaFacts::Scalars scalars;
    std::vector<const Json*> containers;
  };
  using BranchPairs = std::vector<std::pair<size_t, size_t>>;
  struct Origin {  ///< a schema, and the schema that applied it to the same value
    Place place;
    int parent;
    int depth;
  };

  Place followed(Place place);
  bool is_in_pattern(Place schema, const std::string& pattern, const std::string& name);
  static const Handlers* handlers_of(std::string_view name);  ///< null: not supported
  static size_t size_of(const Partial& partial);
  void merge(Partial& partial, Place place, int origin);
  void expand(Partial partial, std::vector<SchemaFacts>& out);
  std::vector<size_t> expand_branches(const Partial& partial, const Group& group,
                                      const BranchPairs& exclusive, std::vector<SchemaFacts>& out);
  void drop_contradiction(SchemaFacts& facts);
  BranchPairs overlapping_branches(const std::vector<SchemaFacts>& facts,
                                   const std::vector<size_t>& branch_ends, size_t first);
  void exclude_branch(Partial& partial, const Group& group, size_t branch, size_t excluded);
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
  void merge_unique(Partial& partial, const Keyword& keyword);
  void merge_reference(Partial& partial, const Keyword& keyword);
  void merge_all(Partial& partial, const Keyword& keyword);
  void add_group(Partial& partial, const Keyword& keyword);
  void merge_not(Partial& partial, const Keyword& keyword);
  void add_dependents(Partial& partial, const Keyword& keyword);
  void add_condition(Partial& partial, const Keyword& keyword);
  void add_pruned(Partial& partial, Place place, const std::vector<Schemas>& branches, int origin);
  JsonTypes types_of(const Keyword& keyword) const;
  int64_t count_of(const Keyword& keyword) const;
  void expect_number(const Keyword& keyword) const;
  std::span<const Json> values_of(const Keyword& keyword) const;
  void refuse_rounded(const Keyword& keyword, const Json& number) const;
  static SchemaFacts::Counts& counts_of(SchemaFacts& facts, const Keyword& keyword);
  Schemas parts_of(const Keyword& keyword);
  std::optional<Place> sibling(const Keyword& keyword, const std::string& name);
  Place with_member(const Keyword& keyword, const std::string& name);
  Place without_member(const Keyword& keyword, const std::string& name);
  static bool lists_dependents(const Keyword& keyword, const Json& dependent);

  Place complement(Place place);
  Place complement_at(Place parent, const Complement& complement);
  Place made_with_complement(Place parent, Json schema, const Json::json_pointer& child, Place of);
  void merge_complement(Partial& partial, const Complement& of, int origin);
  void add_excluding(Partial& partial, const Keyword& keyword,
                     const std::function<std::vector<Schemas>()>& branches);
  void exclude_nothing(Partial& partial, const Keyword& keyword);
  void exclude_reference(Partial& partial, const Keyword& keyword);
  void exclude_any(Partial& partial, const Keyword& keyword);
  void exclude_all(Partial& partial, const Keyword& keyword);
  void exclude_one(Partial& partial, const Keyword& keyword);
  void exclude_complement(Partial& partial, const Keyword& keyword);
  void exclude_condition(Partial& partial, const Keyword& keyword);
  void exclude_dependents(Partial& partial, const Keyword& keyword);
  void exclude_type(Partial& partial, const Keyword& keyword);
  void exclude_values(Partial& partial, const Keyword& keyword);
  void exclude_container(Partial& partial, const Keyword& keyword);
  void exclude_limit(Partial& partial, const Keyword& keyword);
  void exclude_count(Partial& partial, const Keyword& keyword);
  void exclude_pattern(Partial& partial, const Keyword& keyword);
  void exclude_properties(Partial& partial, const Keyword& keyword);
  void exclude_required(Partial& partial, const Keyword& keyword);
  void exclude_prefix(Partial& partial, const Keyword& keyword);

  Place made(Place parent, std::string_view name, Json schema);
  std::string identity(const Json& value) const;
  std::unordered_set<std::string> identities(const std::vector<const Json*>& values) const;
  bool have_disjoint_values(const SchemaFacts& a, const SchemaFacts& b) const;
  void expect(bool condition, const Keyword& keyword, std::string_view expected) const;

  GrammarBuilder& builder_;
  SchemaDocument& document_;
  std::vector<Origin> origins_;
  /// The branches of groups, by their JSON and the keyword they are read as: a reference may use any part of the document as a schema.
  std::map<std::pair<const Json*, std::string>, std::vector<Schemas>> branches_;
  std::map<std::pair<const Json*, std::string>, Place> complement_places_;
  std::unordered_map<const Json*, Complement> complements_;  ///< by the null that represents one
  std::unordered_map<const Json*, ExcludedValues> excluded_values_;
  std::map<Schemas, bool> contradictions_;                               ///< true: no value satisfies them
  std::deque<Json> made_;                                                ///< schemas that express keywords
  std::unordered_map<std::string, GrammarBuilder::Expr> name_patterns_;  ///< that have been read
  size_t num_given_ = 0;                                                 ///< schemas given to alternatives()
  int nesting_ = 0;  ///< of members in members, while objects are told apart
};

/// True if a keyword of JSON Schema does not affect which values are valid.
bool is_annotation(std::string_view keyword);

}  // namespace minfer
