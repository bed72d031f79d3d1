#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "models/grammar/grammar_builder.h"

namespace minfer {

struct NumberLimit {
  std::string number;     ///< without an exponent
  bool excluded = false;  ///< the number itself
};

/// Decimal numbers between limits; at least one limit must be given. No exponents, at most kMostIntegerDigits and
/// kMostFractionDigits digits. Throws GrammarError for a limit beyond which there are no such numbers.
GrammarBuilder::Expr number_range(GrammarBuilder& builder, const std::optional<NumberLimit>& min,
                                  const std::optional<NumberLimit>& max, bool integers_only);

/// Decimals of at most 15 digits. No two of them are the same double, so readers of doubles see the written value.
GrammarBuilder::Expr exact_decimals(GrammarBuilder& builder);
/// Decimals whose fraction, if there is one, is zero.
GrammarBuilder::Expr whole_decimals(GrammarBuilder& builder);

/// Integers of any length that `divisor` divides; empty: not supported. Supported are divisors of powers of ten up to 1,000, and these
/// times 3, 7 or 9.
std::optional<GrammarBuilder::Expr> multiples_of(GrammarBuilder& builder, int64_t divisor);
/// The same for the divisors 0.1, 0.01 and so on, without an exponent.
std::optional<GrammarBuilder::Expr> decimal_multiples(GrammarBuilder& builder, std::string_view divisor);

}  // namespace minfer
