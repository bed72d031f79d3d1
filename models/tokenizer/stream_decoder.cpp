#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/utf8.h"

namespace minfer {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool with_special)
    : tokenizer_(&tokenizer), with_special_(with_special) {}

std::string StreamDecoder::push(TokenId id) {
  held_ += tokenizer_->piece(id, with_special_);
  return take_complete_utf8(held_);
}

std::string StreamDecoder::finish() {
  std::string text = replace_invalid_utf8(held_);
  held_.clear();
  return text;
}

}  // namespace minfer
