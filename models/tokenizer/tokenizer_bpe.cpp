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
        plain_ids_(MergeTable::find_plain_ids(vocabulary, pieces())),
        merges_(vocabulary, plain_ids_),
        byte_ids_(find_single_bytes(vocabulary)),
        add_space_prefix_(vocabulary.add_space_prefix) {}

 private:
  std::array<TokenId, 256> find_single_bytes(const Vocabulary& vocabulary) const;
  void encode_text(std::string_view text, std::vector<TokenId>& ids) const override;
  void encode_word(std::string_view word, std::vector<TokenId>& ids) const;

  Pretokenizer pretokenizer_;
  PretokenizerTraits traits_;
  MergeTable::PlainIds plain_ids_;  ///< keys are views of pieces()
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_;  ///< the symbols that merging begins with; -1: the byte is left out
  bool add_space_prefix_;
};

std::array<TokenId, 256> ByteLevelBpeTokenizer::find_single_bytes(const Vocabulary& vocabulary) const {
  std::array<TokenId, 256> ids = find_byte_tokens(vocabulary);
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    const char c = static_cast<char>(byte);
    const auto found = plain_ids_.find(std::string_view(&c, 1));
    if (found != plain_ids_.end()) ids[byte] = found->second;
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
    const auto found = plain_ids_.find(word);
    if (found != plain_ids_.end()) {
      ids.push_back(found->second);
      return;
    }
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
