#include "server/openai/gap_prompt.h"

#include <utility>

#include <fmt/format.h>

#include "server/openai/api_error.h"

namespace minfer {

std::vector<PromptPart> gap_parts(std::string before, std::string behind, const Tokenizer& tokenizer,
                                  std::string_view field) {
  const FimTokens fim = tokenizer.fim_tokens();
  if (!fim.complete())
    throw unsupported(field, fmt::format("{}: the model has no tokens for filling a gap", field));
  const auto special = [&](TokenId token) {
    return PromptPart{std::string(tokenizer.piece(token, true)), true};
  };
  return {special(fim.prefix),
          {std::move(before), false},
          special(fim.suffix),
          {std::move(behind), false},
          special(fim.middle)};
}

}  // namespace minfer
