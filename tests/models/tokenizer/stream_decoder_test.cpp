// UTF-8 that arrives in parts: never half a character, and the same text for every split.
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/utf8.h"

namespace minfer {
namespace {

/// Ids of single bytes in make_byte_tokenizer's vocabulary.
TokenId byte_token(char byte) {
  return 3 + static_cast<unsigned char>(byte);
}

std::string stream(const Tokenizer& tokenizer, std::string_view bytes) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const char byte : bytes) {
    const std::string part = decoder.push(byte_token(byte));
    EXPECT_EQ(valid_utf8_prefix(part), part.size());
    text += part;
  }
  return text + decoder.finish();
}

class StreamDecoderTest : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> bytes_ = make_byte_tokenizer(260);
};

TEST_F(StreamDecoderTest, CharactersComeWholeAndAtOnce) {
  StreamDecoder decoder(*bytes_);
  EXPECT_EQ(decoder.push(byte_token('a')), "a");
  EXPECT_EQ(decoder.push(byte_token('\xF0')), "");
  EXPECT_EQ(decoder.push(byte_token('\x9F')), "");
  EXPECT_EQ(decoder.push(byte_token('\x98')), "");
  EXPECT_EQ(decoder.push(byte_token('\x80')), "😀");
  EXPECT_EQ(decoder.finish(), "");
}

TEST_F(StreamDecoderTest, InvalidBytesAreReplacedAsSoonAsTheyAreKnown) {
  StreamDecoder decoder(*bytes_);
  EXPECT_EQ(decoder.push(byte_token('\xFF')), "\uFFFD");
  EXPECT_EQ(decoder.push(byte_token('\xE2')), "");
  EXPECT_EQ(decoder.push(byte_token('\x82')), "");
  EXPECT_EQ(decoder.push(byte_token('a')), "\uFFFDa");  // E2 82 can no longer become a character
  EXPECT_EQ(decoder.push(byte_token('\xED')), "");
  EXPECT_EQ(decoder.push(byte_token('\xA0')), "\uFFFD\uFFFD");  // a surrogate, known at its second byte
  EXPECT_EQ(decoder.push(byte_token('\xC3')), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST_F(StreamDecoderTest, ControlTokensShowOnlyWhereAsked) {
  StreamDecoder plain(*bytes_);
  EXPECT_EQ(plain.push(bytes_->eos()), "");
  StreamDecoder special(*bytes_, true);
  EXPECT_EQ(special.push(bytes_->eos()), "</s>");
}

TEST_F(StreamDecoderTest, AControlTokenInsideACharacterDoesNotBreakIt) {
  StreamDecoder decoder(*bytes_);
  EXPECT_EQ(decoder.push(byte_token('\xC3')), "");
  EXPECT_EQ(decoder.push(bytes_->bos()), "");
  EXPECT_EQ(decoder.push(byte_token('\xA9')), "é");
}

std::string utf8_of(uint32_t c) {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | (c >> shift & 63)); };
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

TEST_F(StreamDecoderTest, EveryCharacterStreamsAsItself) {
  for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 61) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const std::string text = utf8_of(c);
    ASSERT_EQ(stream(*bytes_, text), text) << c;
    ASSERT_EQ(read_utf8(text).character, c);
  }
}

/// Tokens of several bytes, which end anywhere in a character and contain several.
class PartsTokenizer final : public Tokenizer {
 public:
  explicit PartsTokenizer(std::vector<std::string> parts) : parts_(std::move(parts)) {}
  std::vector<TokenId> encode_parts(std::span<const PromptPart>, bool) const override { return {}; }
  std::string_view piece(TokenId id, bool) const override { return parts_[static_cast<size_t>(id)]; }
  std::string decode(std::span<const TokenId>, bool) const override { return {}; }
  int32_t vocab_size() const override { return static_cast<int32_t>(parts_.size()); }
  TokenId bos() const override { return -1; }
  TokenId eos() const override { return -1; }
  std::span<const TokenId> end_tokens() const override { return {}; }
  bool is_control(TokenId) const override { return false; }

 private:
  std::vector<std::string> parts_;
};

std::string stream_parts(std::string_view text, uint32_t cuts) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < text.size(); ++i) {
    parts.back() += text[i];
    if (cuts >> i & 1) parts.emplace_back();
  }
  const auto count = static_cast<TokenId>(parts.size());
  const PartsTokenizer tokenizer(std::move(parts));
  StreamDecoder decoder(tokenizer);
  std::string streamed;
  for (TokenId id = 0; id < count; ++id) {
    const std::string part = decoder.push(id);
    EXPECT_EQ(valid_utf8_prefix(part), part.size());
    streamed += part;
  }
  return streamed + decoder.finish();
}

TEST(StreamDecoderSplits, EverySplitGivesTheWholeText) {
  // Characters of 1 to 4 bytes, and every way to be invalid: lone continuation, overlong, surrogate, above
  // U+10FFFF, cut off.
  for (const std::string& text :
       {std::string("aé中😀z"), std::string("\x80\xC0\xAF\xE0\x80\xAFx\xC3"),
        std::string("\xED\xA0\x80\xF4\x90\x80\x80."), std::string("\xF0\x9F\x98\xE4\xB8\xAD\xF0\x9F"),
        std::string("\0\xFE\xC2\xA9\0", 5)}) {
    const std::string whole = replace_invalid_utf8(text);
    for (uint32_t cuts = 0; cuts < 1u << text.size(); ++cuts)
      ASSERT_EQ(stream_parts(text, cuts), whole) << cuts;
  }
}

TEST(Utf8, InvalidBytesAreReplacedAsPythonDoes) {
  // bytes.decode(errors="replace") of Python 3.11.
  EXPECT_EQ(replace_invalid_utf8("\x80\xC0\xAF\xE0\x80\xAFx\xC3"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDx\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98\xE4\xB8\xAD\xF0\x9F"), "\uFFFD中\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8(""), "");
}

TEST(Utf8, PrefixesEndBeforeTheFirstByteThatIsNotUtf8) {
  EXPECT_EQ(valid_utf8_prefix("aé\xFFz"), 3U);
  EXPECT_EQ(valid_utf8_prefix("aé\xE2\x82"), 3U);
  EXPECT_EQ(valid_utf8_prefix("\xE2"), 0U);
}

}  // namespace
}  // namespace minfer
