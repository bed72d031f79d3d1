#include "models/grammar/json/number_range.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "models/grammar/json/json_text.h"

namespace minfer {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr uint64_t kMostWhole = 999'999'999'999'999'999;  // kMostIntegerDigits nines

/// The absolute value of a limit, cut to a bound that the written digits can express.
struct Magnitude {
  uint64_t whole = 0;
  std::string fraction = std::string(kMostFractionDigits, '0');
  bool excluded = false;

  bool has_fraction() const { return fraction.find_first_not_of('0') != std::string::npos; }
};

struct Decimal {
  bool negative = false;
  bool beyond = false;   ///< all numbers of kMostIntegerDigits
  bool inexact = false;  ///< cut behind kMostFractionDigits
  Magnitude magnitude;
};

Decimal read_decimal(std::string_view text) {
  Decimal number;
  number.negative = text.starts_with('-');
  if (number.negative) text.remove_prefix(1);
  const size_t point = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, point);
  std::string fraction(text.substr(std::min(point + 1, text.size())));
  number.beyond = whole.size() > kMostIntegerDigits;
  if (number.beyond) return number;
  std::from_chars(whole.data(), whole.data() + whole.size(), number.magnitude.whole);
  fraction.resize(std::max<size_t>(fraction.size(), kMostFractionDigits), '0');
  number.magnitude.fraction = fraction.substr(0, kMostFractionDigits);
  number.inexact = fraction.find_first_not_of('0', kMostFractionDigits) != std::string::npos;
  if (number.magnitude.whole == 0 && !number.magnitude.has_fraction() && !number.inexact)
    number.negative = false;
  return number;
}

class RangeWriter {
 public:
  RangeWriter(GrammarBuilder& builder, bool integers_only)
      : builder_(builder), integers_only_(integers_only) {}

  /// Numbers without a sign from `low` to `high`.
  Expr magnitudes(const Magnitude& low, const Magnitude& high) {
    if (integers_only_) {
      const bool skips_low = low.excluded || low.has_fraction();
      const bool skips_high = high.excluded && !high.has_fraction();
      if (skips_high && high.whole == 0) return builder_.nothing();
      return integers(low.whole + (skips_low ? 1 : 0), high.whole - (skips_high ? 1 : 0));
    }
    if (low.whole > high.whole) return builder_.nothing();
    if (low.whole == high.whole) return with_fraction(low.whole, &low, &high);
    std::vector<Expr> choices{with_fraction(low.whole, &low, nullptr),
                              with_fraction(high.whole, nullptr, &high)};
    if (high.whole - low.whole > 1) {
      choices.push_back(
          builder_.sequence({integers(low.whole + 1, high.whole - 1), fraction(nullptr, nullptr)}));
    }
    return builder_.choice(choices);
  }

 private:
  Expr digit(char low, char high) {
    return builder_.byte(static_cast<uint8_t>(low), static_cast<uint8_t>(high));
  }
  Expr digits(size_t min, size_t max) {
    return builder_.repeat(digit('0', '9'), static_cast<int64_t>(min), static_cast<int64_t>(max));
  }

  Expr integers(uint64_t low, uint64_t high) {
    if (low > high) return builder_.nothing();
    std::vector<Expr> choices;
    uint64_t first = 0;  // of those of as many digits
    for (size_t size = 1; size <= kMostIntegerDigits && first <= high; ++size) {
      const uint64_t end = first == 0 ? 10 : first * 10;
      if (low < end) {
        choices.push_back(
            of_same_size(std::to_string(std::max(low, first)), std::to_string(std::min(high, end - 1))));
      }
      first = end;
    }
    return builder_.choice(choices);
  }

  /// Digits between two of the same number of digits.
  Expr of_same_size(std::string_view low, std::string_view high) {
    const auto are_all = [](std::string_view text, char c) {
      return text.find_first_not_of(c) == std::string_view::npos;
    };
    if (are_all(low, '0') && are_all(high, '9')) return digits(low.size(), low.size());
    const size_t rest = low.size() - 1;
    if (low[0] == high[0])
      return builder_.sequence({digit(low[0], low[0]), of_same_size(low.substr(1), high.substr(1))});
    const std::string nines(rest, '9');
    const std::string zeros(rest, '0');
    return builder_.choice(
        {builder_.sequence({digit(low[0], low[0]), of_same_size(low.substr(1), nines)}),
         builder_.sequence({digit(high[0], high[0]), of_same_size(zeros, high.substr(1))}),
         builder_.sequence(
             {digit(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)), digits(rest, rest)})});
  }

  Expr with_fraction(uint64_t whole, const Magnitude* low, const Magnitude* high) {
    return builder_.join(std::to_string(whole), fraction(low, high));
  }

  /// The text behind the whole part of a number with the limits' whole part, if limits are given.
  Expr fraction(const Magnitude* low, const Magnitude* high) {
    std::vector<Expr> choices{builder_.sequence({digit('.', '.'), fraction_digits(low, high, 0, false)})};
    if (may_end(low, high, 0)) choices.push_back(builder_.empty());
    return builder_.choice(choices);
  }

  /// True if only zeros may follow from digit `i` on, after the digits of the limits.
  static bool may_end(const Magnitude* low, const Magnitude* high, size_t i) {
    const auto only_zeros = [i](const Magnitude& limit) {
      return limit.fraction.find_first_not_of('0', i) == std::string::npos;
    };
    return (low == nullptr || (only_zeros(*low) && !low->excluded)) &&
           (high == nullptr || !only_zeros(*high) || !high->excluded);
  }

  Expr fraction_digits(const Magnitude* low, const Magnitude* high, size_t i, bool may_be_empty) {
    constexpr size_t kMost = kMostFractionDigits;
    if (low == nullptr && high == nullptr) return digits(may_be_empty ? 0 : 1, kMost - i);
    std::vector<Expr> choices;
    if (may_be_empty && may_end(low, high, i)) choices.push_back(builder_.empty());
    if (i == kMost) return builder_.choice(choices);
    const char first = low == nullptr ? '0' : low->fraction[i];
    const char last = high == nullptr ? '9' : high->fraction[i];
    const auto add = [&](char from, char to, const Magnitude* next_low, const Magnitude* next_high) {
      choices.push_back(
          builder_.sequence({digit(from, to), fraction_digits(next_low, next_high, i + 1, true)}));
    };
    if (first == last) {
      add(first, last, low, high);
    } else if (first < last) {
      add(first, first, low, nullptr);
      add(last, last, nullptr, high);
      if (last - first > 1) add(static_cast<char>(first + 1), static_cast<char>(last - 1), nullptr, nullptr);
    }
    return builder_.choice(choices);
  }

  GrammarBuilder& builder_;
  bool integers_only_;
};

/// The magnitude as a limit of what is written with kMostFractionDigits at most, from below or from above.
Magnitude limit_of(const Decimal& number, bool excluded, bool from_below) {
  Magnitude limit = number.magnitude;
  limit.excluded = from_below ? excluded || number.inexact : excluded && !number.inexact;
  if (number.beyond) {
    limit.whole = kMostWhole;
    limit.fraction.assign(kMostFractionDigits, '9');
    limit.excluded = from_below;
  }
  return limit;
}

constexpr std::string_view kNines = "9999999999999999";
static_assert(kNines.size() == kMostFractionDigits);

}  // namespace

GrammarBuilder::Expr number_range(GrammarBuilder& builder, const std::optional<NumberLimit>& min,
                                  const std::optional<NumberLimit>& max, bool integers_only) {
  RangeWriter writer(builder, integers_only);
  const Magnitude zero;
  const Magnitude most{.whole = kMostWhole, .fraction = std::string(kNines)};
  const std::optional<Decimal> low = min ? std::optional(read_decimal(min->number)) : std::nullopt;
  const std::optional<Decimal> high = max ? std::optional(read_decimal(max->number)) : std::nullopt;
  if ((low && low->beyond && !low->negative) || (high && high->beyond && high->negative))
    fail<GrammarError>("numbers of more than {} digits are not supported", kMostIntegerDigits);
  std::vector<Expr> choices;
  if (!high || !high->negative) {
    choices.push_back(writer.magnitudes(low && !low->negative ? limit_of(*low, min->excluded, true) : zero,
                                        high ? limit_of(*high, max->excluded, false) : most));
  }
  if (!low || low->negative) {
    Magnitude above_zero = zero;
    above_zero.excluded = true;
    choices.push_back(builder.sequence(
        {builder.literal("-"),
         writer.magnitudes(high && high->negative ? limit_of(*high, max->excluded, true) : above_zero,
                           low ? limit_of(*low, min->excluded, false) : most)}));
  }
  return builder.choice(choices);
}

GrammarBuilder::Expr exact_decimals(GrammarBuilder& builder) {
  constexpr int kMostDigits = 15, kStep = 3;
  const Expr digit = builder.byte('0', '9');
  std::vector<Expr> choices{builder.repeat(digit, 1, kMostDigits)};
  for (int behind = kStep; behind < kMostDigits; behind += kStep) {
    choices.push_back(
        builder.join(builder.repeat(digit, 1, kMostDigits - behind), ".", builder.repeat(digit, 1, behind)));
  }
  return builder.sequence({builder.optional(builder.literal("-")), builder.choice(choices)});
}

GrammarBuilder::Expr whole_decimals(GrammarBuilder& builder) {
  const Expr digits = builder.repeat(builder.byte('0', '9'), 1, -1);
  const Expr zeros = builder.repeat(builder.byte('0', '0'), 1, -1);
  return builder.sequence(
      {builder.optional(builder.literal("-")), digits, builder.optional(builder.join(".", zeros))});
}

}  // namespace minfer
