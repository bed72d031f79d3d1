#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/grammar/grammar_builder.h"

namespace minfer {

struct NumberLimit {
  std::string_view number;  ///< as JSON writes it
  bool excluded = false;    ///< the number itself
};

/// Decimal numbers between limits, of which one is there at least: without exponents, with at most kMostIntegerDigits and
/// kMostFractionDigits. Throws GrammarError for a limit beyond which there are no such numbers.
GrammarBuilder::Expr number_range(GrammarBuilder& builder, const std::optional<NumberLimit>& min,
                                  const std::optional<NumberLimit>& max, bool integers_only);

/// Decimals of 15 digits at most: no two of them are the same double, so that each is what it says for those who read doubles.
GrammarBuilder::Expr exact_decimals(GrammarBuilder& builder);
/// Decimals whose fraction, if there is one, is zero.
GrammarBuilder::Expr whole_decimals(GrammarBuilder& builder);

/// Integers, of any length, that `divisor` divides; empty: not for this one. It is for divisors of powers of ten up to 1,000, and such
/// ones times 3, 7 or 9.
std::optional<GrammarBuilder::Expr> multiples_of(GrammarBuilder& builder, int64_t divisor);
/// The same for the divisors 0.1, 0.01 and so on.
std::optional<GrammarBuilder::Expr> decimal_multiples(GrammarBuilder& builder, std::string_view divisor);

}  // namespace minfer
