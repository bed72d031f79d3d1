#include "models/grammar/regex/regex.h"

#include <array>
#include <optional>
#include <vector>

#include "kernels/base/error.h"
#include "models/grammar/grammar_source.h"

namespace minfer {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr int kMaxGroups = 200;  // within each other

/// Texts that a part of a pattern matches, by what its anchors ask of the place.
struct Part {
  struct Texts {
    Expr expr;
    bool can_be_empty;
  };
  static constexpr unsigned kAtStart = 1;  // begins where the text begins
  static constexpr unsigned kAtEnd = 2;    // ends where the text ends
  std::array<std::optional<Texts>, 4> by_anchors;

  bool has_anchors() const { return by_anchors[1] || by_anchors[2] || by_anchors[3]; }
};

/// Translates by recursive descent, the parts at once: there is no tree in between.
class RegexTranslator {
 public:
  RegexTranslator(GrammarBuilder& builder, std::string_view pattern, Spelling spelling,
                  const RegexFlags& flags)
      : builder_(builder), reader_(pattern, flags), spelling_(spelling) {}

  Expr translate(RegexScope scope) {
    const Part part = take_alternatives();
    if (!reader_.at_end()) reader_.refuse(") without its (");
    std::vector<Expr> choices;
    for (unsigned anchors = 0; anchors < 4; ++anchors) {
      if (!part.by_anchors[anchors]) continue;
      std::vector<Expr> texts;
      const bool search = scope == RegexScope::search;
      if (search && (anchors & Part::kAtStart) == 0) texts.push_back(anything());
      texts.push_back(part.by_anchors[anchors]->expr);
      if (search && (anchors & Part::kAtEnd) == 0) texts.push_back(anything());
      choices.push_back(builder_.sequence(texts));
    }
    return builder_.choice(choices);
  }

 private:
  Expr anything() {
    static constexpr CodePointRange kAll{0, kMaxCodePoint};
    return builder_.any_number(spelled(builder_, spelling_, std::span(&kAll, 1)));
  }

  Part plain(Expr expr, bool can_be_empty) const {
    Part part;
    part.by_anchors[0] = {expr, can_be_empty};
    return part;
  }

  Part anchor(unsigned which) {
    Part part;
    part.by_anchors[which] = {builder_.empty(), true};
    return part;
  }

  Part take_alternatives() {
    if (++depth_ > kMaxGroups)
      reader_.refuse(fmt::format("more than {} groups within each other", kMaxGroups));
    std::array<std::vector<Expr>, 4> choices;
    std::array<bool, 4> can_be_empty{};
    do {
      const Part part = take_sequence();
      for (size_t i = 0; i < 4; ++i) {
        if (!part.by_anchors[i]) continue;
        choices[i].push_back(part.by_anchors[i]->expr);
        can_be_empty[i] = can_be_empty[i] || part.by_anchors[i]->can_be_empty;
      }
    } while (reader_.skip("|"));
    --depth_;
    Part all;
    for (size_t i = 0; i < 4; ++i) {
      if (!choices[i].empty()) all.by_anchors[i] = {builder_.choice(choices[i]), can_be_empty[i]};
    }
    return all;
  }

  Part take_sequence() {
    Part all = plain(builder_.empty(), true);
    std::vector<Expr> run;  // of parts without anchors
    bool run_can_be_empty = true;
    const auto end_run = [&] {
      if (!run.empty()) all = join(all, plain(builder_.sequence(run), run_can_be_empty));
      run.clear();
      run_can_be_empty = true;
    };
    while (!reader_.at_end() && reader_.peek() != '|' && reader_.peek() != ')') {
      const Part part = take_repeated();
      if (part.has_anchors()) {
        end_run();
        all = join(all, part);
      } else if (part.by_anchors[0]) {
        run.push_back(part.by_anchors[0]->expr);
        run_can_be_empty = run_can_be_empty && part.by_anchors[0]->can_be_empty;
      } else {  // an anchor where it can never match
        end_run();
        all = Part{};
      }
    }
    end_run();
    return all;
  }

  /// One after the other. Before a start anchor, and behind an end anchor, only the empty text has a place.
  Part join(const Part& first, const Part& second) {
    std::array<std::vector<Expr>, 4> choices;
    Part all;
    for (unsigned a = 0; a < 4; ++a) {
      for (unsigned b = 0; b < 4; ++b) {
        if (!first.by_anchors[a] || !second.by_anchors[b]) continue;
        const bool first_is_empty = (b & Part::kAtStart) != 0;
        const bool second_is_empty = (a & Part::kAtEnd) != 0;
        const auto [left, left_can_be_empty] = *first.by_anchors[a];
        const auto [right, right_can_be_empty] = *second.by_anchors[b];
        if ((first_is_empty && !left_can_be_empty) || (second_is_empty && !right_can_be_empty)) continue;
        const Expr texts = builder_.sequence(
            {first_is_empty ? builder_.empty() : left, second_is_empty ? builder_.empty() : right});
        choices[a | b].push_back(texts);
        const bool was_empty = all.by_anchors[a | b] && all.by_anchors[a | b]->can_be_empty;
        all.by_anchors[a | b] = {builder_.choice(choices[a | b]),
                                 was_empty || (left_can_be_empty && right_can_be_empty)};
      }
    }
    return all;
  }

  Part take_repeated() {
    Part part = take_atom();
    const auto count = reader_.take_quantifier();
    if (!count) return part;
    if (!part.has_anchors()) {
      if (!part.by_anchors[0]) return count->min == 0 ? plain(builder_.empty(), true) : part;
      const auto [expr, can_be_empty] = *part.by_anchors[0];
      return plain(builder_.repeat(expr, count->min, count->max), can_be_empty || count->min == 0);
    }
    if (count->max != 1) reader_.refuse("an anchor within what is repeated is not supported");
    if (count->min == 0) {
      const auto unanchored = part.by_anchors[0];
      part.by_anchors[0] = {unanchored ? builder_.optional(unanchored->expr) : builder_.empty(), true};
    }
    return part;
  }

  Part take_atom() {
    if (reader_.skip("^")) return anchor(Part::kAtStart);
    if (reader_.skip("$")) return anchor(Part::kAtEnd);
    if (!reader_.skip("(")) return plain(spelled(builder_, spelling_, reader_.take_character()), false);
    if (reader_.skip("?")) skip_group_kind();
    Part group = take_alternatives();
    if (!reader_.skip(")")) reader_.refuse("a group is not closed: ) expected");
    return group;
  }

  /// Behind "(?".
  void skip_group_kind() {
    if (reader_.skip(":")) return;
    for (const std::string_view look_around : {"=", "!", "<=", "<!"}) {
      if (reader_.skip(look_around))
        reader_.refuse(fmt::format("(?{} (look-around) is not supported", look_around));
    }
    if (!reader_.skip("<")) reader_.refuse("(? is not supported, except (?: and (?<name>");
    reader_.skip_group_name();
  }

  GrammarBuilder& builder_;
  RegexReader reader_;
  Spelling spelling_;
  int depth_ = 0;
};

}  // namespace

GrammarBuilder::Expr regex_texts(GrammarBuilder& builder, std::string_view pattern, RegexScope scope,
                                 Spelling spelling, const RegexFlags& flags) {
  constexpr size_t kWorkOfByte = 100;
  builder.spend(kWorkOfByte * pattern.size());
  return RegexTranslator(builder, pattern, spelling, flags).translate(scope);
}

GrammarBuilder::Expr add_regex(GrammarBuilder& builder, std::string_view pattern) {
  return regex_texts(builder, pattern, RegexScope::whole, Spelling::plain);
}

}  // namespace minfer
