#include "models/tokenizer.h"

#include <algorithm>

namespace minfer {

bool Tokenizer::is_end(TokenId id) const { return std::ranges::find(end_tokens(), id) != end_tokens().end(); }

}  // namespace minfer
