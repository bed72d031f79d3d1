// Any text with well-formed vocabularies of every kind, and with any vocabulary: ids stay inside the
// vocabulary, the text is restored, a stream gives the same as the whole, and a malformed vocabulary is
// refused with a FileError.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/pretokenizer.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/utf8.h"
#include "models/tokenizer/vocabulary.h"
#include "tests/fuzz/require.h"
#include "tests/support/models/vocabularies.h"

namespace minfer {
namespace {

struct Subject {
  std::unique_ptr<Tokenizer> tokenizer;
  bool lossless;        ///< the text gets no normal form
  bool escapes_spaces;  ///< it takes U+2581 for a space
};

std::vector<Subject> make_subjects() {
  std::vector<Subject> subjects;
  for (const bool add_space_prefix : {true, false}) {
    Vocabulary vocabulary = test::small_sentencepiece_vocabulary();
    vocabulary.add_space_prefix = add_space_prefix;
    test::add_token(vocabulary, "<tool>", TokenType::user_defined);
    subjects.push_back({make_tokenizer(vocabulary), true, true});
  }
  subjects.push_back({make_tokenizer(test::small_character_bpe_vocabulary()), true, true});
  for (const PretokenizerRule& rule : pretokenizer_rules()) {
    const std::string_view name = rule.names.substr(0, rule.names.find(' '));
    subjects.push_back({make_tokenizer(test::small_bpe_vocabulary(name)), !rule.traits.nfc, false});
  }
  return subjects;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  StreamDecoder decoder(tokenizer, true);
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = decoder.push(id);
    REQUIRE(valid_utf8_prefix(part) == part.size());
    text += part;
  }
  return text + decoder.finish();
}

/// Checks that apply to every tokeniser.
std::vector<TokenId> check_encoding(const Tokenizer& tokenizer, std::string_view text,
                                    const EncodeOptions& options) {
  const std::vector<TokenId> ids = tokenizer.encode(text, options);
  std::string joined;
  for (const TokenId id : ids) {
    REQUIRE(id >= 0 && id < tokenizer.vocab_size());
    REQUIRE(options.parse_special || options.add_special || !tokenizer.is_control(id) ||
            tokenizer.piece(id, true) == "<unk>");
    joined += tokenizer.piece(id, true);
  }
  REQUIRE(stream(tokenizer, ids) == replace_invalid_utf8(joined));
  return ids;
}

void check_text(uint8_t which, uint8_t flags, std::string_view text) {
  static const std::vector<Subject> subjects = make_subjects();
  const Subject& subject = subjects[which % subjects.size()];
  const EncodeOptions options{.add_special = (flags & 1) != 0, .parse_special = (flags & 2) != 0};
  const std::vector<TokenId> ids = check_encoding(*subject.tokenizer, text, options);
  // BOS would show among the special tokens.
  const bool reversible = subject.lossless && !options.add_special &&
                          !(subject.escapes_spaces && text.find("\xE2\x96\x81") != std::string_view::npos);
  if (reversible) REQUIRE(subject.tokenizer->decode(ids, true) == text);
}

/// A vocabulary from bytes: each line is a token (the first byte gives the type), then come merges, and last the text.
void check_vocabulary(uint8_t flags, std::string_view bytes) {
  Vocabulary vocabulary;
  vocabulary.name = "fuzz";
  vocabulary.model = (flags & 64) != 0  ? VocabularyModel::character_bpe
                     : (flags & 1) != 0 ? VocabularyModel::sentencepiece
                                        : VocabularyModel::byte_level_bpe;
  vocabulary.pre = (flags & 2) != 0 ? "llama-bpe" : "qwen2";
  vocabulary.add_bos = (flags & 4) != 0;
  vocabulary.add_space_prefix = (flags & 8) != 0;
  vocabulary.remove_extra_whitespaces = (flags & 16) != 0;
  vocabulary.strip_right_of_special = (flags & 32) != 0;
  const auto take_line = [&bytes] {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    return line;
  };
  for (std::string_view line = take_line(); !line.empty(); line = take_line()) {
    const auto type = static_cast<uint8_t>(line.front());
    test::add_token(vocabulary, std::string(line.substr(1)), static_cast<TokenType>(type % 7),
                    static_cast<float>(type / 7));
  }
  for (std::string_view line = take_line(); !line.empty(); line = take_line())
    vocabulary.merges.emplace_back(line);
  const auto take_id = [&bytes]() -> TokenId {
    if (bytes.empty()) return -1;
    const auto id = static_cast<int8_t>(bytes.front());
    bytes.remove_prefix(1);
    return id;
  };
  vocabulary.bos = take_id();
  vocabulary.eos = take_id();
  vocabulary.unknown = take_id();
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(std::move(vocabulary));
  check_encoding(*tokenizer, bytes, {.add_special = true, .parse_special = true});
  tokenizer->decode(tokenizer->encode(bytes, {.add_special = false, .parse_special = false}));
}

}  // namespace
}  // namespace minfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  try {
    if (data[0] >= 192) {
      minfer::check_vocabulary(data[1], rest);
    } else {
      minfer::check_text(data[0], data[1], rest);
    }
  } catch (const minfer::FileError&) {
    return 0;  // a malformed vocabulary
  }
  return 0;
}
