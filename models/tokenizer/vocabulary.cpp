#include "models/tokenizer/vocabulary.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "models/gguf/printable.h"
#include "models/tokenizer/byte_alphabet.h"
#include "models/tokenizer/pretokenizer.h"
#include "models/tokenizer/special_tokens.h"

namespace minfer {
namespace {

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";

VocabularyModel read_model(const GgufFile& file) {
  const std::string_view model = file.require_string(kModelKey);
  if (model == "llama") return VocabularyModel::sentencepiece;
  if (model == "gpt2") return VocabularyModel::byte_level_bpe;
  if (model == "gemma4") return VocabularyModel::character_bpe;
  fail<FileError>(
      "{}: {}: unknown tokeniser '{}', expected llama (SentencePiece), gpt2 (byte-level BPE) or gemma4 (BPE "
      "over "
      "characters)",
      file.name(), kModelKey, printable(model));
}

/// The id a key holds, or `fallback` if that is inside the vocabulary. -1 in a file means none, as 4294967295
/// does, which is how converters write -1 as u32.
TokenId read_id(const GgufFile& file, std::string_view key, int64_t vocab_size, TokenId fallback) {
  const std::optional<int64_t> id = file.get_int(key);
  if (!id) return fallback < vocab_size ? fallback : -1;
  if (*id == -1 || *id == std::numeric_limits<uint32_t>::max()) return -1;
  if (*id < 0 || *id >= vocab_size) {
    fail<FileError>("{}: {}: token {}, expected one of the vocabulary's {}", file.name(), key, *id,
                    vocab_size);
  }
  return static_cast<TokenId>(*id);
}

void read_special_ids(const GgufFile& file, Vocabulary& vocabulary) {
  // SentencePiece vocabularies of the Llama family may leave these ids out, because they are always the same.
  const bool spm = vocabulary.model == VocabularyModel::sentencepiece;
  const int64_t size = vocabulary.size();
  vocabulary.unknown = read_id(file, "tokenizer.ggml.unknown_token_id", size, spm ? 0 : -1);
  vocabulary.bos = read_id(file, "tokenizer.ggml.bos_token_id", size, spm ? 1 : -1);
  vocabulary.eos = read_id(file, "tokenizer.ggml.eos_token_id", size, spm ? 2 : -1);
  for (const std::string_view key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const TokenId id = read_id(file, key, size, -1);
    if (id >= 0) vocabulary.end_tokens.push_back(id);
  }
  vocabulary.fim = {.prefix = read_id(file, "tokenizer.ggml.fim_pre_token_id", size, -1),
                    .suffix = read_id(file, "tokenizer.ggml.fim_suf_token_id", size, -1),
                    .middle = read_id(file, "tokenizer.ggml.fim_mid_token_id", size, -1)};
}

void read_flags(const GgufFile& file, Vocabulary& vocabulary) {
  const bool spm = vocabulary.model == VocabularyModel::sentencepiece;
  const bool words = vocabulary.model == VocabularyModel::byte_level_bpe;
  const bool adds_bos = !words || pretokenizer_traits(vocabulary.pre).add_bos;
  vocabulary.add_bos =
      file.get_bool("tokenizer.ggml.add_bos_token").value_or(adds_bos && vocabulary.bos >= 0);
  // Gemma 4 was never trained without BOS; its first files say false, and llama.cpp adds it all the same.
  if (vocabulary.model == VocabularyModel::character_bpe && vocabulary.bos >= 0) vocabulary.add_bos = true;
  vocabulary.add_eos = file.get_bool("tokenizer.ggml.add_eos_token").value_or(false);
  vocabulary.add_space_prefix = file.get_bool("tokenizer.ggml.add_space_prefix").value_or(spm);
  vocabulary.remove_extra_whitespaces =
      file.get_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
  // The files do not carry this property of Phi-3's added tokens, so the model's name stands for it, as in llama.cpp.
  std::string model_name(file.get_string("general.name").value_or(""));
  std::ranges::transform(model_name, model_name.begin(), [](unsigned char c) { return std::tolower(c); });
  vocabulary.strip_right_of_special =
      model_name.find("phi-3") != std::string::npos || model_name.find("phi3") != std::string::npos;
}

std::vector<TokenType> read_types(const GgufFile& file) {
  std::vector<TokenType> types;
  for (const int64_t type : file.get_ints(kTypesKey)) {
    const bool known = type >= 0 && type <= static_cast<int64_t>(TokenType::byte);
    types.push_back(known ? static_cast<TokenType>(type) : TokenType::undefined);
  }
  return types;
}

void check_count(const Vocabulary& vocabulary, std::string_view key, size_t count) {
  if (count == 0 || count == vocabulary.tokens.size()) return;
  fail<FileError>("{}: {}: {} elements, expected {}, one per token", vocabulary.name, key, count,
                  vocabulary.tokens.size());
}

void check_id(const Vocabulary& vocabulary, std::string_view what, TokenId id) {
  if (id >= -1 && id < vocabulary.size()) return;
  fail<FileError>("{}: {} token {}, expected one of the vocabulary's {}", vocabulary.name, what, id,
                  vocabulary.size());
}

void check_token(const Vocabulary& vocabulary, TokenId id) {
  const std::string& text = vocabulary.tokens[static_cast<size_t>(id)];
  const TokenType type = vocabulary.type(id);
  if (type == TokenType::byte && !parse_byte_token(text)) {
    fail<FileError>("{}: {}[{}]: byte token '{}', expected <0x00> to <0xFF>", vocabulary.name, kTokensKey, id,
                    text);
  }
  if (is_special(type) && text.size() > kMaxSpecialTokenBytes) {
    fail<FileError>("{}: {}[{}]: special token of {} bytes, expected at most {}", vocabulary.name, kTokensKey,
                    id, text.size(), kMaxSpecialTokenBytes);
  }
  if (!vocabulary.scores.empty() && std::isnan(vocabulary.scores[static_cast<size_t>(id)])) {
    fail<FileError>("{}: {}[{}]: not a number", vocabulary.name, kScoresKey, id);
  }
}

}  // namespace

Vocabulary read_vocabulary(const GgufFile& file) {
  Vocabulary vocabulary;
  vocabulary.name = file.name();
  vocabulary.model = read_model(file);
  vocabulary.pre = file.get_string("tokenizer.ggml.pre").value_or("default");
  for (const std::string_view token : file.get_strings(kTokensKey))
    vocabulary.tokens.emplace_back(token);
  vocabulary.scores = file.get_floats(kScoresKey);
  vocabulary.types = read_types(file);
  for (const std::string_view merge : file.get_strings(kMergesKey))
    vocabulary.merges.emplace_back(merge);
  read_special_ids(file, vocabulary);
  read_flags(file, vocabulary);
  return vocabulary;
}

void validate(const Vocabulary& vocabulary) {
  if (vocabulary.tokens.empty() || vocabulary.tokens.size() > std::numeric_limits<TokenId>::max()) {
    fail<FileError>("{}: {}: {} tokens, expected 1 to {}", vocabulary.name, kTokensKey,
                    vocabulary.tokens.size(), std::numeric_limits<TokenId>::max());
  }
  check_count(vocabulary, kScoresKey, vocabulary.scores.size());
  check_count(vocabulary, kTypesKey, vocabulary.types.size());
  for (TokenId id = 0; id < vocabulary.size(); ++id)
    check_token(vocabulary, id);
  check_id(vocabulary, "beginning-of-text", vocabulary.bos);
  check_id(vocabulary, "end-of-text", vocabulary.eos);
  check_id(vocabulary, "unknown", vocabulary.unknown);
  for (const TokenId id : vocabulary.end_tokens)
    check_id(vocabulary, "end-of-turn", id);
  for (const TokenId id : {vocabulary.fim.prefix, vocabulary.fim.suffix, vocabulary.fim.middle})
    check_id(vocabulary, "fill-in-the-middle", id);
  if (vocabulary.add_bos && vocabulary.bos < 0) {
    fail<FileError>("{}: tokenizer.ggml.add_bos_token is true without tokenizer.ggml.bos_token_id",
                    vocabulary.name);
  }
  if (vocabulary.add_eos && vocabulary.eos < 0) {
    fail<FileError>("{}: tokenizer.ggml.add_eos_token is true without tokenizer.ggml.eos_token_id",
                    vocabulary.name);
  }
}

std::optional<std::string> running_text(VocabularyModel model, std::string_view text) {
  return model == VocabularyModel::byte_level_bpe ? bytes_from_alphabet(text) : unescape_spaces(text);
}

bool is_mergeable(const Vocabulary& vocabulary, TokenId id) {
  const TokenType type = vocabulary.type(id);
  if (type == TokenType::byte) return false;
  if (vocabulary.model != VocabularyModel::character_bpe) return !is_special(type);
  // A text with a space as such is none that merging sees: it sees U+2581.
  return (!is_special(type) || type == TokenType::user_defined) &&
         vocabulary.tokens[static_cast<size_t>(id)].find(' ') == std::string::npos;
}

std::optional<uint8_t> parse_byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  uint8_t byte = 0;
  const char* end = text.data() + 5;
  // from_chars takes no sign for an unsigned type, so "<0x-1>" fails here.
  const auto [stop, error] = std::from_chars(text.data() + 3, end, byte, 16);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return byte;
}

std::array<TokenId, 256> find_byte_tokens(const Vocabulary& vocabulary) {
  std::array<TokenId, 256> ids;
  ids.fill(-1);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.type(id) != TokenType::byte) continue;
    const std::optional<uint8_t> byte = parse_byte_token(vocabulary.tokens[static_cast<size_t>(id)]);
    if (byte && ids[*byte] < 0) ids[*byte] = id;
  }
  return ids;
}

}  // namespace minfer
