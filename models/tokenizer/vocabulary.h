#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/gguf/gguf.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The key of a BPE vocabulary's merges.
inline constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

/// Kinds of tokens, numbered as in tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  undefined = 0,
  normal = 1,        ///< text that merging may produce
  unknown = 2,       ///< stands for text that the vocabulary cannot express
  control = 3,       ///< BOS, end of turn, ...: no text of its own; parsed from text only on request
  user_defined = 4,  ///< its text always becomes this token, before any other processing
  unused = 5,
  byte = 6,  ///< <0x00> ... <0xFF>: one byte
};

enum class VocabularyModel {
  sentencepiece,   ///< tokenizer.ggml.model "llama": SentencePiece BPE, by scores
  byte_level_bpe,  ///< "gpt2": BPE over bytes within words, by merges
  character_bpe,  ///< "gemma4": BPE over characters across words, by merges; spaces as U+2581, bytes where there is no character
};

/// The token data of a GGUF file, as plain values. Tokenisers are made from it; tests fill it by hand.
struct Vocabulary {
  std::string name;  ///< of the file, for messages
  VocabularyModel model = VocabularyModel::sentencepiece;
  std::string pre;  ///< name of the pre-tokeniser (byte-level BPE)
  /// As in the file: text with U+2581 for spaces, or bytes in GPT-2's alphabet; by id.
  std::vector<std::string> tokens;
  std::vector<float> scores;        ///< by id, higher merges first; empty: all 0
  std::vector<TokenType> types;     ///< by id; empty: all normal
  std::vector<std::string> merges;  ///< "left right", best first; none in SentencePiece
  TokenId bos = -1;                 ///< -1: none, as below
  TokenId eos = -1;
  TokenId unknown = -1;
  std::vector<TokenId> end_tokens;  ///< named by the file besides eos: end of turn, end of message
  FimTokens fim;                    ///< if the file names none, the tokens with a well-known text
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  bool remove_extra_whitespaces = false;
  bool strip_right_of_special = false;  ///< white space after a special token belongs to it (Phi-3)

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  TokenType type(TokenId id) const {
    return types.empty() ? TokenType::normal : types[static_cast<size_t>(id)];
  }
};

/// Reads tokenizer.ggml.* and validates it (see validate). Throws FileError naming the key, expected and found.
Vocabulary read_vocabulary(const GgufFile& file);

/// Throws FileError unless every array has one element per token, every id is -1 or in the vocabulary, scores are numbers, byte tokens
/// are spelt <0xHH>, special tokens have 1 to 1,024 bytes, and the tokens of add_bos and add_eos exist.
void validate(const Vocabulary& vocabulary);

/// The tokeniser of a vocabulary; validates it first.
std::unique_ptr<Tokenizer> make_tokenizer(Vocabulary vocabulary);

/// The running text for the spelling of a mergeable token or of a part of a merge; nullopt if the spelling does not follow
/// the model's rules.
std::optional<std::string> running_text(VocabularyModel model, std::string_view text);

/// True if merging may take or make the token. User-defined tokens are cut out of texts before; Gemma 4's merges also make them.
bool is_mergeable(const Vocabulary& vocabulary, TokenId id);

/// The byte that a token's text "<0xHH>" spells; nullopt for any other text.
std::optional<uint8_t> parse_byte_token(std::string_view text);

/// The ids of the tokens that spell single bytes as <0xHH>, by byte; -1 if the vocabulary has no such token.
std::array<TokenId, 256> find_byte_tokens(const Vocabulary& vocabulary);

}  // namespace minfer
