#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/special_tokens.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/vocabulary.h"

namespace minfer {

/// The part that all tokenisers share: special tokens, BOS and EOS, pieces and decoding. A family adds the encoding of plain text.
class VocabularyTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> encode_parts(std::span<const PromptPart> parts, bool add_special) const final;
  std::string_view piece(TokenId id, bool with_special) const final;
  std::string decode(std::span<const TokenId> ids, bool with_special) const final;

  int32_t vocab_size() const final { return static_cast<int32_t>(pieces_.size()); }
  TokenId bos() const final { return bos_; }
  TokenId eos() const final { return eos_; }
  std::span<const TokenId> end_tokens() const final { return end_tokens_; }
  bool is_control(TokenId id) const final;
  FimTokens fim_tokens() const final { return fim_; }

 protected:
  /// `vocabulary` is validated and completed (complete_special_tokens).
  explicit VocabularyTokenizer(const Vocabulary& vocabulary);

  /// Appends the tokens of `text`, which is not empty and has no special token. `text` is at the beginning or behind a special token.
  virtual void encode_text(std::string_view text, std::vector<TokenId>& ids) const = 0;

  /// The bytes of each token, by id: the running text of a plain token, the name of a special token. Never changes.
  const std::vector<std::string>& pieces() const { return pieces_; }
  TokenType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }

 private:
  void check_id(TokenId id) const;

  SpecialTokens special_tokens_;
  std::vector<std::string> pieces_;
  std::vector<TokenType> types_;
  std::vector<TokenId> end_tokens_;
  TokenId bos_;
  TokenId eos_;
  FimTokens fim_;
  bool add_bos_;
  bool add_eos_;
  bool strip_prefix_space_;
};

/// SentencePiece's BPE by scores.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const Vocabulary& vocabulary);

/// Byte-level BPE by merges, in words cut by the pre-tokeniser `vocabulary.pre`. Throws FileError if that is
/// unknown or a merge names tokens that the vocabulary lacks.
std::unique_ptr<Tokenizer> make_byte_level_bpe_tokenizer(const Vocabulary& vocabulary);

/// BPE over characters by merges, across words. Throws FileError if there are no merges, or as above.
std::unique_ptr<Tokenizer> make_character_bpe_tokenizer(const Vocabulary& vocabulary);

}  // namespace minfer
