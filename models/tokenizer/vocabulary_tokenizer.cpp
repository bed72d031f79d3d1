#include "models/tokenizer/vocabulary_tokenizer.h"

namespace minfer {
namespace {

std::string piece_of(const Vocabulary& vocabulary, TokenId id) {
  const std::string& text = vocabulary.tokens[static_cast<size_t>(id)];
  if (vocabulary.type(id) == TokenType::byte)
    return std::string(1, static_cast<char>(parse_byte_token(text).value()));
  if (!is_mergeable(vocabulary, id)) return text;
  // A token with characters outside GPT-2's alphabet was added as text, not made by merging bytes.
  return running_text(vocabulary.model, text).value_or(text);
}

}  // namespace

VocabularyTokenizer::VocabularyTokenizer(const Vocabulary& vocabulary)
    : special_tokens_(vocabulary),
      types_(vocabulary.types),
      end_tokens_(vocabulary.end_tokens),
      bos_(vocabulary.bos),
      eos_(vocabulary.eos),
      fim_(vocabulary.fim),
      add_bos_(vocabulary.add_bos),
      add_eos_(vocabulary.add_eos),
      strip_prefix_space_(vocabulary.add_space_prefix && vocabulary.model == VocabularyModel::sentencepiece) {
  pieces_.reserve(vocabulary.tokens.size());
  for (TokenId id = 0; id < vocabulary.size(); ++id)
    pieces_.push_back(piece_of(vocabulary, id));
}

std::vector<TokenId> VocabularyTokenizer::encode_parts(std::span<const PromptPart> parts,
                                                       bool add_special) const {
  std::vector<TokenId> ids;
  if (add_special && add_bos_) ids.push_back(bos_);
  std::string text;  // since the last special token
  const auto encode_pending = [&] {
    if (!text.empty()) encode_text(text, ids);
    text.clear();
  };
  for (const PromptPart& part : parts) {
    for (const SpecialTokens::Fragment& fragment : special_tokens_.split(part.text, part.parse_special)) {
      if (fragment.token < 0) {
        text += fragment.text;
        continue;
      }
      encode_pending();
      ids.push_back(fragment.token);
    }
  }
  encode_pending();
  if (add_special && add_eos_) ids.push_back(eos_);
  return ids;
}

std::string_view VocabularyTokenizer::piece(TokenId id, bool with_special) const {
  const bool hidden = is_control(id) && !with_special;
  return hidden ? std::string_view() : pieces_[static_cast<size_t>(id)];
}

std::string VocabularyTokenizer::decode(std::span<const TokenId> ids, bool with_special) const {
  std::string bytes;
  bool starts_fragment = true;
  for (const TokenId id : ids) {
    std::string_view text = piece(id, with_special);
    const bool special = is_special(type(id));
    if (strip_prefix_space_ && starts_fragment && !special && text.starts_with(' ')) text.remove_prefix(1);
    bytes += text;
    starts_fragment = special;
  }
  return bytes;
}

bool VocabularyTokenizer::is_control(TokenId id) const {
  check_id(id);
  return type(id) == TokenType::control || type(id) == TokenType::unknown;
}

void VocabularyTokenizer::check_id(TokenId id) const {
  if (id < 0 || id >= vocab_size()) fail("token {}, expected one of the vocabulary's {}", id, vocab_size());
}

}  // namespace minfer
