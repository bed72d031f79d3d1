#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "models/grammar/grammar_builder.h"
#include "models/grammar/json/number_range.h"

namespace minfer {
namespace {

using Expr = GrammarBuilder::Expr;

/// Digits whose number leaves no remainder: the automaton of the remainders, eliminated one after another (Kleene 1956).
Expr digits_without_remainder(GrammarBuilder& builder, int divisor) {
  const auto size = static_cast<size_t>(divisor);
  std::vector<std::vector<Expr>> between(size, std::vector<Expr>(size, builder.nothing()));
  for (int from = 0; from < divisor; ++from) {
    for (int digit = 0; digit < 10; ++digit) {
      Expr& texts = between[static_cast<size_t>(from)][static_cast<size_t>((from * 10 + digit) % divisor)];
      texts = builder.choice({texts, builder.literal(std::to_string(digit))});
    }
  }
  for (size_t over = size - 1; over > 0; --over) {
    const Expr around = builder.any_number(between[over][over]);
    for (size_t from = 0; from < over; ++from) {
      for (size_t to = 0; to < over; ++to) {
        const Expr detour = builder.sequence({between[from][over], around, between[over][to]});
        between[from][to] = builder.choice({between[from][to], detour});
      }
    }
  }
  return builder.any_number(between[0][0]);
}

/// Digits whose number is a multiple of a divisor of 10 ^ `num_digits`: what the last ones say.
Expr digits_ending_in_multiple(GrammarBuilder& builder, int64_t divisor, int num_digits) {
  int64_t end = 1;
  for (int i = 0; i < num_digits; ++i)
    end *= 10;
  std::vector<std::string> alone, ending;
  for (int64_t multiple = 0; multiple < end; multiple += divisor) {
    alone.push_back(std::to_string(multiple));
    ending.push_back(num_digits == 0 ? "" : fmt::format("{:0{}}", multiple, num_digits));
  }
  const Expr digits = builder.any_number(builder.byte('0', '9'));
  return builder.choice({one_of(builder, alone), builder.sequence({digits, one_of(builder, ending)})});
}

}  // namespace

std::optional<Expr> multiples_of(GrammarBuilder& builder, int64_t divisor) {
  int64_t rest = divisor;
  int twos = 0, fives = 0;
  for (; rest % 2 == 0 && rest > 0; rest /= 2)
    ++twos;
  for (; rest % 5 == 0 && rest > 0; rest /= 5)
    ++fives;
  if ((rest != 1 && rest != 3 && rest != 7 && rest != 9) || twos > 3 || fives > 3) return std::nullopt;
  Expr digits = digits_ending_in_multiple(builder, divisor / rest, std::max(twos, fives));
  if (rest > 1) digits = builder.both(digits, digits_without_remainder(builder, static_cast<int>(rest)));
  return builder.sequence({builder.optional(builder.literal("-")), digits});
}

std::optional<Expr> decimal_multiples(GrammarBuilder& builder, std::string_view divisor) {
  const bool is_power_of_ten = divisor.starts_with("0.") && divisor.ends_with('1') &&
                               divisor.find_first_not_of('0', 2) == divisor.size() - 1;
  if (!is_power_of_ten) return std::nullopt;
  const auto places = static_cast<int>(divisor.size()) - 2;
  const Expr digit = builder.byte('0', '9');
  const Expr fraction = builder.join(".", builder.repeat(digit, 1, places));
  return builder.sequence(
      {builder.optional(builder.literal("-")), builder.repeat(digit, 1, -1), builder.optional(fraction)});
}

}  // namespace minfer
