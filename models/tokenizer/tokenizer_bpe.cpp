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
  std::array<TokenId, 256> find_single_bytes(const Vocabulary& vocabulary) const;
  void encode_text(std::string_view text, std::vector<TokenId>& ids) const override;
  void encode_word(std::string_view word, std::vector<TokenId>& ids) const;

  Pretokenizer pretokenizer_;
  PretokenizerTraits traits_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_;  ///< the symbols that merging begins with; -1: the byte is left out
  bool add_space_prefix_;
};

std::array<TokenId, 256> ByteLevelBpeTokenizer::find_single_bytes(const Vocabulary& vocabulary) const {
  std::array<TokenId, 256> ids = find_byte_tokens(vocabulary);
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    const char c = static_cast<char>(byte);
    if (const TokenId id = merges_.find({&c, 1}); id >= 0) ids[byte] = id;
  }
  return ids;
}

void ByteLevelBpeTokenizer::encode_text(std::string_view text, std::vector<TokenId>& ids) const {
  std::string prepared;
  if (add_space_prefix_ && !text.starts_with(' ')) prepared += ' ';
  prepared += traits_.nfc ? to_nfc(text) : std::string(text);
  for (const std::string_view word : pretokenizer_.split(prepared))
    encode_word(word, ids);
}

void ByteLevelBpeTokenizer::encode_word(std::string_view word, std::vector<TokenId>& ids) const {
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

}  // namespace

std::unique_ptr<Tokenizer> make_byte_level_bpe_tokenizer(const Vocabulary& vocabulary) {
  return std::make_unique<ByteLevelBpeTokenizer>(vocabulary);
}

}  // namespace minfer
