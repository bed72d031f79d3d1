#include "models/tokenizer/tokenizer.h"

#include <algorithm>

#include "models/tokenizer/special_tokens.h"
#include "models/tokenizer/utf8.h"
#include "models/tokenizer/vocabulary_tokenizer.h"

namespace minfer {

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const PromptPart part{.text = std::string(text), .parse_special = options.parse_special};
  return encode_parts({&part, 1}, options.add_special);
}

bool Tokenizer::is_end(TokenId id) const {
  return std::ranges::find(end_tokens(), id) != end_tokens().end();
}

std::unique_ptr<Tokenizer> make_tokenizer(Vocabulary vocabulary) {
  validate(vocabulary);
  complete_special_tokens(vocabulary);
  switch (vocabulary.model) {
    case VocabularyModel::sentencepiece:
      return make_sentencepiece_tokenizer(vocabulary);
    case VocabularyModel::byte_level_bpe:
      return make_byte_level_bpe_tokenizer(vocabulary);
    case VocabularyModel::character_bpe:
      return make_character_bpe_tokenizer(vocabulary);
  }
  fail("{}: no tokeniser of this kind", vocabulary.name);
}

std::unique_ptr<Tokenizer> make_tokenizer(const GgufFile& file) {
  return make_tokenizer(read_vocabulary(file));
}

std::unique_ptr<Tokenizer> make_byte_tokenizer(int32_t vocab_size) {
  constexpr int32_t kSpecial = 3;
  constexpr int32_t kBytes = 256;
  if (vocab_size < kSpecial + kBytes + 1) {
    fail("synthetic vocabulary of {} tokens, expected at least {}", vocab_size, kSpecial + kBytes + 1);
  }
  Vocabulary vocabulary;
  vocabulary.name = "synthetic vocabulary";
  vocabulary.model = VocabularyModel::byte_level_bpe;
  vocabulary.pre = "gpt-2";
  vocabulary.tokens = {"<unk>", "<s>", "</s>"};
  vocabulary.types = {TokenType::unknown, TokenType::control, TokenType::control};
  for (int32_t byte = 0; byte < kBytes; ++byte)
    vocabulary.tokens.push_back(fmt::format("<0x{:02X}>", byte));
  vocabulary.types.resize(vocabulary.tokens.size(), TokenType::byte);
  for (int32_t id = vocabulary.size(); id < vocab_size; ++id)
    vocabulary.tokens.push_back(fmt::format("<t{}>", id));
  vocabulary.types.resize(vocabulary.tokens.size(), TokenType::normal);
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.add_bos = true;
  return make_tokenizer(std::move(vocabulary));
}

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
