#include "tests/support/models/vocabularies.h"

#include <algorithm>
#include <map>

#include "models/tokenizer/byte_alphabet.h"

namespace minfer::test {
namespace {

std::string utf8(char32_t character) {
  if (character < 0x80) return {static_cast<char>(character)};
  return {static_cast<char>(0xC0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3F))};
}

void add_merge(Vocabulary& vocabulary, const std::string& left, const std::string& right) {
  vocabulary.merges.push_back(left + " " + right);
  if (token_id(vocabulary, left + right) < 0) add_token(vocabulary, left + right, TokenType::normal);
}

}  // namespace

Vocabulary gap_vocabulary(bool with_files) {
  Vocabulary vocabulary = small_bpe_vocabulary();
  for (const char* text : {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"})
    add_token(vocabulary, text, TokenType::control);
  for (const char* text : {"<|repo_name|>", "<|file_sep|>"})
    if (with_files) add_token(vocabulary, text, TokenType::control);
  return vocabulary;
}

TokenId token_id(const Vocabulary& vocabulary, std::string_view text) {
  const auto found = std::ranges::find(vocabulary.tokens, text);
  return found == vocabulary.tokens.end() ? -1 : static_cast<TokenId>(found - vocabulary.tokens.begin());
}

TokenId add_token(Vocabulary& vocabulary, std::string text, TokenType type, float score) {
  vocabulary.tokens.push_back(std::move(text));
  vocabulary.types.push_back(type);
  if (vocabulary.model == VocabularyModel::sentencepiece) vocabulary.scores.push_back(score);
  return vocabulary.size() - 1;
}

Vocabulary small_sentencepiece_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.name = "small SentencePiece vocabulary";
  vocabulary.model = VocabularyModel::sentencepiece;
  vocabulary.unknown = add_token(vocabulary, "<unk>", TokenType::unknown);
  vocabulary.bos = add_token(vocabulary, "<s>", TokenType::control);
  vocabulary.eos = add_token(vocabulary, "</s>", TokenType::control);
  for (int byte = 0; byte < 256; ++byte) {
    add_token(vocabulary, fmt::format("<0x{:02X}>", byte), TokenType::byte);
  }
  float score = 0.0f;
  for (const char* text :
       {"▁t",   "he", "▁a", "in", "▁the", "er", "on", "▁▁", "▁▁▁▁", "an", "▁an", "the", "ing", "aa",
        "aaaa", "é",  "中", "▁",  "a",    "b",  "e",  "g",  "h",    "i",  "n",   "o",   "r",   "t"}) {
    add_token(vocabulary, text, TokenType::normal, score -= 1.0f);
  }
  vocabulary.add_bos = true;
  vocabulary.add_space_prefix = true;
  return vocabulary;
}

Vocabulary small_bpe_vocabulary(std::string_view pre) {
  Vocabulary vocabulary;
  vocabulary.name = "small BPE vocabulary";
  vocabulary.model = VocabularyModel::byte_level_bpe;
  vocabulary.pre = pre;
  std::map<std::string, std::string> spellings;  // of each byte
  for (char32_t character = 0; character < 0x144; ++character) {
    if (const auto byte = bytes_from_alphabet(utf8(character))) spellings[*byte] = utf8(character);
  }
  for (const auto& [byte, spelling] : spellings)
    add_token(vocabulary, spelling, TokenType::normal);
  for (const auto& [left, right] : {std::pair{"l", "l"},
                                    {"h", "e"},
                                    {"Ġ", "Ġ"},
                                    {"o", "r"},
                                    {"Ġ", "w"},
                                    {"he", "ll"},
                                    {"hell", "o"},
                                    {"Ġ", "hello"},
                                    {"Ġw", "or"},
                                    {"l", "d"},
                                    {"Ġwor", "ld"},
                                    {"ĠĠ", "ĠĠ"},
                                    {"Ã", "©"},
                                    {"a", "a"},
                                    {"aa", "aa"},
                                    {"1", "2"},
                                    {"12", "3"}}) {
    add_merge(vocabulary, left, right);
  }
  vocabulary.eos = vocabulary.bos = add_token(vocabulary, "<|endoftext|>", TokenType::control);
  add_token(vocabulary, "<|im_end|>", TokenType::control);
  add_token(vocabulary, "<tool>", TokenType::user_defined);
  return vocabulary;
}

Vocabulary small_character_bpe_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.name = "small vocabulary of characters";
  vocabulary.model = VocabularyModel::character_bpe;
  add_token(vocabulary, "<pad>", TokenType::control);
  vocabulary.eos = add_token(vocabulary, "<eos>", TokenType::control);
  vocabulary.bos = add_token(vocabulary, "<bos>", TokenType::control);
  vocabulary.unknown = add_token(vocabulary, "<unk>", TokenType::unknown);
  add_token(vocabulary, "<|turn>", TokenType::control);
  add_token(vocabulary, "<turn|>", TokenType::control);
  add_token(vocabulary, "<tool>", TokenType::user_defined);
  for (int byte = 0; byte < 256; ++byte)
    add_token(vocabulary, fmt::format("<0x{:02X}>", byte), TokenType::byte);
  for (const char* text :
       {"\n", "\n\n", "\n\n\n\n\n", "▁", "a", "d", "e", "h", "i", "n", "t", "é", "中", "<", ">"})
    add_token(vocabulary, text, TokenType::normal);
  for (const auto& [left, right] : {std::pair{"h", "e"},
                                    {"▁", "t"},
                                    {"▁t", "he"},
                                    {"▁", "▁"},
                                    {"▁▁", "▁▁"},
                                    {"e", "n"},
                                    {"en", "d"},
                                    {"▁", "end"},
                                    {"▁the", "▁end"},
                                    {"a", "a"},
                                    {"aa", "aa"},
                                    {"a", "é"}}) {
    add_merge(vocabulary, left, right);
  }
  vocabulary.add_bos = true;
  return vocabulary;
}

}  // namespace minfer::test
