#pragma once

#include <span>
#include <string_view>

#include "models/tokenizer/pretokenizer.h"

namespace minfer {

/// One family of pre-tokenisers.
struct PretokenizerRule {
  std::string_view names;                      ///< values of tokenizer.ggml.pre, separated by spaces
  std::span<const std::string_view> patterns;  ///< PCRE2 expressions, applied in order
  PretokenizerTraits traits;
};

std::span<const PretokenizerRule> pretokenizer_rules();

}  // namespace minfer
