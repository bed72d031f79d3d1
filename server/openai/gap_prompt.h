#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The prompt for a gap in a text that the answer is to fill, as models know it that are trained for it: prefix token, `before`, suffix
/// token, `behind`, middle token, each a part; the texts' own special tokens do not count. Throws unsupported() for `field` if the
/// vocabulary has no such tokens.
std::vector<PromptPart> gap_parts(std::string before, std::string behind, const Tokenizer& tokenizer,
                                  std::string_view field);
/// Which of the parts is the suffix token: what the model sees behind the text in front of the gap.
inline constexpr size_t kGapSuffixPart = 2;

}  // namespace minfer
