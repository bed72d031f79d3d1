#include <algorithm>
#include <array>

#include "models/tokenizer/byte_alphabet.h"
#include "models/tokenizer/merge_table.h"
#include "models/tokenizer/pretokenizer.h"
#include "models/tokenizer/utf8.h"
#include "models/tokenizer/vocabulary_tokenizer.h"

namespace minfer {
namespace {

/// Byte-level BPE (GPT-2): text is cut into words, and within each word bytes are merged into tokens.
class ByteLevelBpeTokenizer final : public VocabularyTokenizer {
 public:
  explicit ByteLevelBpeTokenizer(const Vocabulary& vocabulary)
      : VocabularyTokenizer(vocabulary),
        pretokenizer_(vocabulary.pre),
        traits_(pretokenizer_traits(vocabulary.pre)),
        merges_(vocabulary, pieces()),
        byte_ids_(find_single_bytes(vocabulary)),
        add_space_prefix_(vocabulary.add_space_prefix) {}

 private:
  std::array<TokenId, 256> find_single_bytes(const Vocabulary& vocabulary) const {
    std::array<TokenId, 256> ids = find_byte_tokens(vocabulary);
    for (size_t byte = 0; byte < ids.size(); ++byte) {
      const char c = static_cast<char>(byte);
      if (const TokenId id = merges_.find({&c, 1}); id >= 0) ids[byte] = id;
    }
    return ids;
  }

  void encode_text(std::string_view text, std::vector<TokenId>& ids) const override {
    std::string prepared;
    if (add_space_prefix_ && !text.starts_with(' ')) prepared += ' ';
    prepared += traits_.nfc ? to_nfc(text) : std::string(text);
    for (const std::string_view word : pretokenizer_.split(prepared))
      encode_word(word, ids);
  }

  void encode_word(std::string_view word, std::vector<TokenId>& ids) const {
    if (traits_.ignore_merges) {
      if (const TokenId id = merges_.find(word); id >= 0) return ids.push_back(id);
    }
    std::vector<TokenId> symbols;
    symbols.reserve(word.size());
    // A byte without a token is left out before its neighbours are merged, as in Hugging Face's tokenizers. The unknown token does not stand
    // for it: these vocabularies have the end of documents there.
    for (const char c : word) {
      if (const TokenId id = byte_ids_[static_cast<unsigned char>(c)]; id >= 0) symbols.push_back(id);
    }
    merges_.merge(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

  Pretokenizer pretokenizer_;
  PretokenizerTraits traits_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_;  ///< the symbols that merging begins with; -1: the byte is left out
  bool add_space_prefix_;
};

/// Gemma 4's BPE: characters are merged into tokens, across words and spaces; only runs of line ends are apart. A character without a
/// token of its own becomes its bytes' tokens.
///
/// Spaces and U+2581 are the same to the vocabulary. Here both are spaces, as in pieces().
class CharacterBpeTokenizer final : public VocabularyTokenizer {
 public:
  explicit CharacterBpeTokenizer(const Vocabulary& vocabulary)
      : VocabularyTokenizer(vocabulary),
        merges_(vocabulary, pieces()),
        line_ends_(find_line_ends()),
        byte_ids_(find_byte_tokens(vocabulary)),
        unknown_(vocabulary.unknown),
        add_space_prefix_(vocabulary.add_space_prefix) {}

 private:
  std::vector<TokenId> find_line_ends() const {
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < vocab_size(); ++id) {
      const std::string& text = pieces()[static_cast<size_t>(id)];
      if (text.starts_with('\n') && text.find_first_not_of('\n') == std::string::npos &&
          merges_.find(text) == id)
        ids.push_back(id);
    }
    std::ranges::sort(ids, std::ranges::greater(),
                      [&](TokenId id) { return pieces()[static_cast<size_t>(id)].size(); });
    return ids;
  }

  void encode_text(std::string_view text, std::vector<TokenId>& ids) const override {
    std::string prepared;
    if (add_space_prefix_ && !text.starts_with(' ')) prepared += ' ';
    prepared += unescape_spaces(text);
    std::string_view rest = prepared;
    while (!rest.empty()) {
      const bool at_line_end = rest.front() == '\n';
      const size_t end = at_line_end ? rest.find_first_not_of('\n') : rest.find('\n');
      const std::string_view part = rest.substr(0, end);
      if (at_line_end) {
        append_line_ends(part.size(), ids);
      } else {
        encode_line(part, ids);
      }
      rest.remove_prefix(part.size());
    }
  }

  void encode_line(std::string_view line, std::vector<TokenId>& ids) const {
    std::vector<TokenId> symbols;
    symbols.reserve(line.size());
    while (!line.empty()) {
      const std::string_view character = line.substr(0, read_utf8(line).length);
      append_character(character, symbols);
      line.remove_prefix(character.size());
    }
    merges_.merge(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

  void append_line_ends(size_t count, std::vector<TokenId>& ids) const {
    for (const TokenId id : line_ends_) {
      const size_t size = pieces()[static_cast<size_t>(id)].size();
      for (; count >= size; count -= size)
        ids.push_back(id);
    }
    for (; count > 0; --count)
      append_character("\n", ids);
  }

  /// The character's token, its bytes' tokens, or one unknown token for a run of characters that have neither.
  void append_character(std::string_view character, std::vector<TokenId>& symbols) const {
    if (const TokenId id = merges_.find(character); id >= 0) return symbols.push_back(id);
    const auto id_of = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    if (std::ranges::all_of(character, [&](char c) { return id_of(c) >= 0; })) {
      for (const char c : character)
        symbols.push_back(id_of(c));
    } else if (unknown_ >= 0 && (symbols.empty() || symbols.back() != unknown_)) {
      symbols.push_back(unknown_);
    }
  }

  MergeTable merges_;
  std::vector<TokenId> line_ends_;  ///< tokens of nothing but line ends, most first
  std::array<TokenId, 256> byte_ids_;
  TokenId unknown_;
  bool add_space_prefix_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_level_bpe_tokenizer(const Vocabulary& vocabulary) {
  return std::make_unique<ByteLevelBpeTokenizer>(vocabulary);
}

std::unique_ptr<Tokenizer> make_character_bpe_tokenizer(const Vocabulary& vocabulary) {
  if (vocabulary.merges.empty()) {
    fail<FileError>("{}: {}: none, expected those of the vocabulary's tokens", vocabulary.name, kMergesKey);
  }
  return std::make_unique<CharacterBpeTokenizer>(vocabulary);
}

}  // namespace minfer
