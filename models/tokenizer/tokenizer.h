#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/gguf/gguf.h"

namespace minfer {

using TokenId = int32_t;

struct EncodeOptions {
  bool add_special = true;    ///< add BOS/EOS if the vocabulary asks for them (add_bos_token, add_eos_token)
  bool parse_special = true;  ///< special tokens' text becomes the token; false treats it as plain text
};

/// A piece of a prompt. Markup: texts of special tokens become these tokens. A person's text: they stay plain text.
struct PromptPart {
  std::string text;
  bool parse_special = false;
};

/// The tokens of a fill-in-the-middle prompt: prefix, text before, suffix, text behind, middle. -1: the vocabulary has none.
struct FimTokens {
  TokenId prefix = -1;
  TokenId suffix = -1;
  TokenId middle = -1;
  bool complete() const { return prefix >= 0 && suffix >= 0 && middle >= 0; }
};

/// Converts text to token ids and back. Immutable: any thread may use it. Input is bytes. Invalid UTF-8 is never refused: it is
/// encoded with byte tokens or U+FFFD, as the vocabulary allows.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// Encodes the pieces of one prompt, in order. Only special tokens divide the text: the text between two of them
  /// is tokenised as a whole, even if it comes from several pieces.
  virtual std::vector<TokenId> encode_parts(std::span<const PromptPart> parts,
                                            bool add_special = true) const = 0;
  /// The bytes a token stands for in running text; empty for control tokens unless `with_special`. May be
  /// part of a UTF-8 character. Throws Error if `id` is outside the vocabulary.
  virtual std::string_view piece(TokenId id, bool with_special = false) const = 0;
  /// The bytes of a whole sequence: its pieces joined, without the space that add_space_prefix put in front.
  virtual std::string decode(std::span<const TokenId> ids, bool with_special = false) const = 0;

  virtual int32_t vocab_size() const = 0;
  virtual TokenId bos() const = 0;  ///< -1 if the vocabulary has none
  virtual TokenId eos() const = 0;  ///< -1 if none
  /// Tokens that end a generation: EOS, EOT, end-of-turn markers.
  virtual std::span<const TokenId> end_tokens() const = 0;
  virtual bool is_control(TokenId id) const = 0;
  virtual FimTokens fim_tokens() const { return {}; }
  bool is_end(TokenId id) const;
};

/// From a file's tokenizer.ggml.* metadata: SentencePiece ("llama"), byte-level BPE ("gpt2") or BPE over characters ("gemma4"). Throws
/// FileError naming an unknown model or pre-tokeniser and the known ones.
std::unique_ptr<Tokenizer> make_tokenizer(const GgufFile& file);

/// A vocabulary without merges for synthetic models of `vocab_size` >= 260: <unk> <s> </s>, 256 bytes, then
/// "<t259>" ....
std::unique_ptr<Tokenizer> make_byte_tokenizer(int32_t vocab_size);

/// Turns a growing sequence of tokens into text without ever emitting part of a UTF-8 character.
class StreamDecoder {
 public:
  /// `tokenizer` outlives the decoder. The text continues a prompt: unlike decode(), a space in front stays.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool with_special = false);
  /// Returns the text that is complete now, and holds back the bytes of an unfinished character.
  std::string push(TokenId id);
  /// Returns the bytes held back, with U+FFFD for a character that never became whole.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool with_special_;
  std::string held_;
};

}  // namespace minfer
