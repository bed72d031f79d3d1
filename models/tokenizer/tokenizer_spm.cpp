#include <algorithm>
#include <array>
#include <unordered_set>

#include <sentencepiece_processor.h>

#include "models/tokenizer/escaped_spaces.h"
#include "models/tokenizer/sentencepiece_model.h"
#include "models/tokenizer/utf8.h"
#include "models/tokenizer/vocabulary_tokenizer.h"

namespace minfer {
namespace {

/// Spaces as SentencePiece's remove_extra_whitespaces leaves them: none at either end, one where there were
/// several.
std::string collapse_spaces(std::string_view text) {
  std::string collapsed;
  for (const char c : text) {
    if (c == ' ' && (collapsed.empty() || collapsed.back() == ' ')) continue;
    collapsed += c;
  }
  if (collapsed.ends_with(' ')) collapsed.pop_back();
  return collapsed;
}

/// Whether a piece has U+2581 behind another character. If none has, no piece lies across the beginning of a
/// run of spaces.
bool has_inner_space(std::string_view piece) {
  for (size_t at = piece.find(kEscapedSpace, 1); at != std::string_view::npos;
       at = piece.find(kEscapedSpace, at + 1)) {
    if (!piece.substr(0, at).ends_with(kEscapedSpace)) return true;
  }
  return false;
}

// Long texts go to libsentencepiece in parts, where that cannot change the tokens. Whole, English took 1.2 s
// for 1 MB and 7.5 s for 4 MB (its queue of candidates outgrows the caches), and 95 bytes of memory for each
// byte of text.
constexpr size_t kPartBytes = 4096;

/// libsentencepiece does the merging and nothing else: special tokens are cut out before, spaces are escaped
/// and prefixed here, invalid UTF-8 goes to byte tokens directly, and pieces are the base class's. So the
/// model it gets holds one unknown piece, the 256 bytes, and the tokens that merging may produce, numbered
/// apart from the vocabulary's ids.
class SentencePieceTokenizer final : public VocabularyTokenizer {
 public:
  explicit SentencePieceTokenizer(const Vocabulary& vocabulary)
      : VocabularyTokenizer(vocabulary),
        byte_ids_(find_byte_tokens(vocabulary)),
        unknown_(vocabulary.unknown),
        add_space_prefix_(vocabulary.add_space_prefix),
        remove_extra_whitespaces_(vocabulary.remove_extra_whitespaces) {
    load(vocabulary);
  }

 private:
  void load(const Vocabulary& vocabulary);
  void encode_text(std::string_view text, std::vector<TokenId>& ids) const override;
  void encode_valid(std::string_view text, std::vector<TokenId>& ids) const;
  void encode_part(std::string_view text, std::vector<TokenId>& ids) const;
  size_t part_size(std::string_view text) const;
  void append_byte(uint8_t byte, std::vector<TokenId>& ids) const;

  sentencepiece::SentencePieceProcessor processor_;
  std::vector<TokenId> plain_ids_;  ///< by SentencePiece id, less kFirstPlain
  std::array<TokenId, 256> byte_ids_;
  TokenId unknown_;
  bool add_space_prefix_;
  bool remove_extra_whitespaces_;
  bool divisible_at_spaces_ = true;  ///< no piece lies across the beginning of a run of spaces

  static constexpr size_t kFirstByte = 1;  ///< SentencePiece id of byte 0; 0 is the unknown piece
  static constexpr size_t kFirstPlain = kFirstByte + 256;
};

void SentencePieceTokenizer::load(const Vocabulary& vocabulary) {
  std::array<std::string, 256> byte_names;
  std::vector<SentencePiece> pieces;
  // Its name is not UTF-8, so no text is ever it.
  pieces.push_back({"\xFF", 0.0f, SentencePiece::Type::unknown});
  for (size_t byte = 0; byte < byte_names.size(); ++byte) {
    byte_names[byte] = fmt::format("<0x{:02X}>", byte);
    pieces.push_back({byte_names[byte], 0.0f, SentencePiece::Type::byte});
  }
  std::unordered_set<std::string_view> seen;  // of tokens with the same text the first one counts
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string& text = vocabulary.tokens[static_cast<size_t>(id)];
    if (is_special(type(id)) || text.empty() || parse_byte_token(text) || !seen.insert(text).second) continue;
    const float score = vocabulary.scores.empty() ? 0.0f : vocabulary.scores[static_cast<size_t>(id)];
    const bool unused = type(id) == TokenType::unused;
    pieces.push_back({text, score, unused ? SentencePiece::Type::unused : SentencePiece::Type::normal});
    plain_ids_.push_back(id);
    if (has_inner_space(text)) divisible_at_spaces_ = false;
  }
  const auto status = processor_.LoadFromSerializedProto(serialize_sentencepiece_model(pieces));
  if (!status.ok())
    fail<FileError>("{}: SentencePiece refuses the vocabulary: {}", vocabulary.name, status.message());
}

void SentencePieceTokenizer::encode_text(std::string_view text, std::vector<TokenId>& ids) const {
  std::string spaced(text);
  if (remove_extra_whitespaces_) spaced = collapse_spaces(spaced);
  if (spaced.empty()) return;
  if (add_space_prefix_) spaced.insert(spaced.begin(), ' ');
  const std::string escaped = escape_spaces(spaced);

  std::string_view rest = escaped;
  while (!rest.empty()) {
    const size_t valid = valid_utf8_prefix(rest);
    if (valid > 0) {
      encode_valid(rest.substr(0, valid), ids);
      rest.remove_prefix(valid);
      continue;
    }
    // libsentencepiece would turn the byte into U+FFFD; its own token keeps it.
    append_byte(static_cast<uint8_t>(rest.front()), ids);
    rest.remove_prefix(1);
  }
}

void SentencePieceTokenizer::encode_valid(std::string_view text, std::vector<TokenId>& ids) const {
  while (!text.empty()) {
    const size_t size = part_size(text);
    encode_part(text.substr(0, size), ids);
    text.remove_prefix(size);
  }
}

/// Bytes at the front of `text` whose tokens do not depend on what follows.
size_t SentencePieceTokenizer::part_size(std::string_view text) const {
  if (!divisible_at_spaces_) return text.size();
  size_t at = text.find(kEscapedSpace, kPartBytes);
  while (at != std::string_view::npos && text.substr(0, at).ends_with(kEscapedSpace))
    at = text.find(kEscapedSpace, at + 1);
  return std::min(at, text.size());
}

void SentencePieceTokenizer::encode_part(std::string_view text, std::vector<TokenId>& ids) const {
  std::vector<int> pieces;
  const auto status = processor_.Encode(text, &pieces);
  if (!status.ok()) fail("SentencePiece cannot encode {} bytes: {}", text.size(), status.message());
  for (const int signed_piece : pieces) {
    const auto piece = static_cast<size_t>(signed_piece);
    if (piece >= kFirstPlain) {
      ids.push_back(plain_ids_[piece - kFirstPlain]);
    } else if (piece >= kFirstByte) {
      append_byte(static_cast<uint8_t>(piece - kFirstByte), ids);
    }
  }
}

void SentencePieceTokenizer::append_byte(uint8_t byte, std::vector<TokenId>& ids) const {
  if (byte_ids_[byte] >= 0) {
    ids.push_back(byte_ids_[byte]);
  } else if (unknown_ >= 0 && (ids.empty() || ids.back() != unknown_)) {
    // Without byte tokens SentencePiece gives one unknown token for a run of unknown characters.
    ids.push_back(unknown_);
  }
}

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const Vocabulary& vocabulary) {
  return std::make_unique<SentencePieceTokenizer>(vocabulary);
}

}  // namespace minfer
