// The cuts of each pre-tokeniser.
#include "models/tokenizer/pretokenizer.h"

#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/cpu_time.h"

namespace minfer {
namespace {

constexpr std::string_view kTexts[] = {
    "I'll DON'T it'ſ  go\n\n  x 1234567 ١٢ v2.0",
    "HTTPServer camelCase e\u0301tÉ \"hi\"...//\n!? a+b `c` $5",
    "中文字かな 한국어\u3000ГрузинႠა！？ ½²\u180E\u00A0\r\n\t end   ",
};

struct Expected {
  std::string_view names;
  std::string_view words[3];  // of kTexts, separated by ¦
};

// From tokenizers 0.23.3 (PyPI): pre_tokenizer.pre_tokenize_str of the steps in
// tests/checks/pretokenizer_facts.py, with the words cut from the text at the offsets that it returns.
// Falcon's third line omits the cuts inside characters: the package makes them at bytes that look like digits,
// and no merge of its vocabulary crosses them.
constexpr Expected kExpected[] = {
    {"default",
     {"I¦'¦ll¦ DON¦'¦T¦ it¦'¦ſ¦ ¦ go¦\n\n ¦ x¦ ¦123¦456¦7¦ ¦١٢¦ v¦2¦.¦0",
      "HTTPServer¦ camelCase¦ e¦\u0301¦tÉ¦ ¦\"¦hi¦\"...//¦\n¦!?¦ a¦+¦b¦ `¦c¦`¦ ¦$¦5",
      "中文字かな¦ 한국어¦\u3000¦ГрузинႠა¦！？¦ ¦½²¦\u180E¦\u00A0\r\n\t¦ end¦   "}},
    {"gpt-2 mpt",
     {"I¦'ll¦ DON¦'¦T¦ it¦'¦ſ¦ ¦ go¦\n\n ¦ x¦ 1234567¦ ١٢¦ v¦2¦.¦0",
      "HTTPServer¦ camelCase¦ e¦\u0301¦tÉ¦ \"¦hi¦\"...//¦\n¦!?¦ a¦+¦b¦ `¦c¦`¦ $¦5",
      "中文字かな¦ 한국어¦\u3000¦ГрузинႠა¦！？¦ ½²¦\u180E¦\u00A0\r\n\t¦ end¦   "}},
    {"llama-bpe glm4",
     {"I¦'ll¦ DON¦'T¦ it¦'ſ¦ ¦ go¦\n\n¦ ¦ x¦ ¦123¦456¦7¦ ¦١٢¦ v¦2¦.¦0",
      "HTTPServer¦ camelCase¦ e¦\u0301tÉ¦ \"¦hi¦\"...//\n¦!?¦ a¦+b¦ `¦c¦`¦ $¦5",
      "中文字かな¦ 한국어¦\u3000ГрузинႠა¦！？¦ ¦½²¦\u180E¦\u00A0\r\n¦\t¦ end¦   "}},
    {"qwen2 bailingmoe",
     {"I¦'ll¦ DON¦'T¦ it¦'ſ¦ ¦ go¦\n\n¦ ¦ x¦ ¦1¦2¦3¦4¦5¦6¦7¦ ¦١¦٢¦ v¦2¦.¦0",
      "HTTPServer¦ camelCase¦ e¦\u0301tÉ¦ \"¦hi¦\"...//\n¦!?¦ a¦+b¦ `¦c¦`¦ $¦5",
      "中文字かな¦ 한국어¦\u3000ГрузинႠა¦！？¦ ¦½¦²¦\u180E¦\u00A0\r\n¦\t¦ end¦   "}},
    {"deepseek-llm",
     {"I¦'¦ll¦ DON¦'¦T¦ it¦'¦ſ¦ ¦ go¦\n¦\n¦ ¦ x¦ ¦1¦2¦3¦4¦5¦6¦7¦ ¦١¦٢¦ v¦2¦.¦0",
      "HTTPServer¦ camelCase¦ e¦\u0301¦t¦É¦ \"¦hi¦\"...//¦\n¦!?¦ a¦+¦b¦ `¦c¦`¦ $¦5",
      "中文字かな¦ ¦한국어¦\u3000¦Грузин¦Ⴀ¦ა¦！？¦ ¦½¦²¦\u180E¦\u00A0¦\r¦\n¦\t¦ end¦   "}},
    {"deepseek-coder",
     {"I¦'¦ll¦ DON¦'¦T¦ it¦'¦ſ¦ ¦ go¦\n¦\n¦ ¦ x¦ ¦1¦2¦3¦4¦5¦6¦7¦ ¦١¦٢¦ v¦2¦.¦0",
      "HTTPServer¦ camelCase¦ e¦\u0301¦tÉ¦ \"¦hi¦\"...//¦\n¦!?¦ a¦+¦b¦ `¦c¦` $¦5",
      "中文字かな¦ ¦한국어¦\u3000¦Грузин¦Ⴀა¦！？¦ ¦½¦²¦\u180E¦\u00A0¦\r¦\n¦\t¦ end¦   "}},
    {"falcon",
     {"I¦'¦ll¦ DON¦'¦T¦ it¦'¦ſ¦ ¦ go¦\n\n ¦ x¦ ¦123¦456¦7¦ ١٢¦ v¦2¦.¦0",
      "HTTPServer¦ camelCase¦ e¦\u0301¦tÉ¦ ¦\"¦hi¦\"...//¦\n¦!?¦ a¦+¦b¦ ¦`¦c¦`¦ ¦$¦5",
      "中文字かな¦ 한국어¦\u3000¦ГрузинႠა¦！？¦ ½²¦\u180E¦\u00A0\r\n\t¦ end¦   "}},
    {"starcoder refact smollm command-r",
     {"I¦'ll¦ DON¦'¦T¦ it¦'¦ſ¦ ¦ go¦\n\n ¦ x¦ ¦1¦2¦3¦4¦5¦6¦7¦ ¦١¦٢¦ v¦2¦.¦0",
      "HTTPServer¦ camelCase¦ e¦\u0301¦tÉ¦ \"¦hi¦\"...//¦\n¦!?¦ a¦+¦b¦ `¦c¦`¦ $¦5",
      "中文字かな¦ 한국어¦\u3000¦ГрузинႠა¦！？¦ ¦½¦²¦\u180E¦\u00A0\r\n\t¦ end¦   "}},
    {"deepseek-v3",
     {"I¦'ll¦ DON¦'T¦ it¦'¦ſ¦ ¦ go¦\n\n¦ ¦ x¦ ¦123¦456¦7¦ ¦١٢¦ v¦2¦.¦0",
      "HTTPServer¦ camelCase¦ e\u0301tÉ¦ \"¦hi¦\"...//\n¦!?¦ a¦+b¦ `¦c¦`¦ $¦5",
      "中文字かな¦ 한국어¦\u3000ГрузинႠა¦！？¦ ¦½²¦\u180E¦\u00A0\r\n¦\t¦ end¦   "}},
    {"qwen35",
     {"I¦'ll¦ DON¦'T¦ it¦'ſ¦ ¦ go¦\n\n¦ ¦ x¦ ¦1¦2¦3¦4¦5¦6¦7¦ ¦١¦٢¦ v¦2¦.¦0",
      "HTTPServer¦ camelCase¦ e\u0301tÉ¦ \"¦hi¦\"...//\n¦!?¦ a¦+b¦ `¦c¦`¦ $¦5",
      "中文字かな¦ 한국어¦\u3000ГрузинႠა¦！？¦ ¦½¦²¦\u180E¦\u00A0\r\n¦\t¦ end¦   "}},
    {"seed-coder",
     {"I¦'ll¦ DON¦'T¦ it¦'ſ¦ ¦ go¦\n\n¦ ¦ x¦ ¦1¦2¦3¦4¦5¦6¦7¦ ¦١¦٢¦ v¦2¦.¦0",
      "HTTPServer¦ camelCase¦ e¦\u0301tÉ¦ \"¦hi¦\"...//¦\n¦!?¦ a¦+b¦ `¦c¦`¦ $¦5",
      "中文字かな¦ 한국어¦\u3000ГрузинႠა¦！？¦ ¦½¦²¦\u180E¦\u00A0\r\n¦\t¦ end¦   "}},
    {"kimi-k2",
     {"I'll¦ DON'T¦ it'ſ¦ ¦ go¦\n\n¦ ¦ x¦ ¦123¦456¦7¦ ¦١٢¦ v¦2¦.¦0",
      "HTTPServer¦ camel¦Case¦ e\u0301t¦É¦ \"¦hi¦\"...//\n¦!?¦ a¦+b¦ `¦c¦`¦ $¦5",
      "中文字¦かな¦ 한국어¦\u3000Грузин¦Ⴀა¦！？¦ ¦½²¦\u180E¦\u00A0\r\n¦\t¦ end¦   "}},
    {"tekken",
     {"I¦'ll¦ DON¦'T¦ it¦'ſ¦ ¦ go¦\n\n¦ ¦ x¦ ¦1¦2¦3¦4¦5¦6¦7¦ ¦١¦٢¦ v¦2¦.¦0",
      "HTTPServer¦ camel¦Case¦ e\u0301t¦É¦ \"¦hi¦\"...//\n¦!?¦ a¦+b¦ `¦c¦`¦ $¦5",
      "中文字かな¦ 한국어¦\u3000Грузин¦Ⴀა¦！？¦ ¦½¦²¦\u180E¦\u00A0\r\n¦\t¦ end¦   "}},
    {"gpt-4o",
     {"I'll¦ DON'T¦ it'ſ¦ ¦ go¦\n\n¦ ¦ x¦ ¦123¦456¦7¦ ¦١٢¦ v¦2¦.¦0",
      "HTTPServer¦ camel¦Case¦ e\u0301t¦É¦ \"¦hi¦\"...//\n¦!?¦ a¦+b¦ `¦c¦`¦ $¦5",
      "中文字かな¦ 한국어¦\u3000Грузин¦Ⴀა¦！？¦ ¦½²¦\u180E¦\u00A0\r\n¦\t¦ end¦   "}},
};

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) {
    if (!text.empty()) text += "¦";
    text += word;
  }
  return text;
}

std::vector<std::string_view> names_of(std::string_view names) {
  std::vector<std::string_view> all;
  while (true) {
    const size_t space = names.find(' ');
    all.push_back(names.substr(0, space));
    if (space == std::string_view::npos) return all;
    names.remove_prefix(space + 1);
  }
}

TEST(Pretokenizer, CutsAsTheModelsOwnTokenisersDo) {
  for (const Expected& expected : kExpected) {
    for (const std::string_view name : names_of(expected.names)) {
      const Pretokenizer pretokenizer(name);
      for (size_t i = 0; i < std::size(kTexts); ++i) {
        EXPECT_EQ(joined(pretokenizer.split(kTexts[i])), expected.words[i]) << name;
      }
    }
  }
}

TEST(Pretokenizer, EveryNameOfTheTableCompilesAndKeepsEveryByte) {
  std::mt19937 random(7);
  std::string bytes(20000, '\0');
  // Mostly printable, so that there are words, with bytes that are not UTF-8 among them.
  for (char& c : bytes)
    c = static_cast<char>(random() % 4 == 0 ? random() : 0x20 + random() % 0x60);
  for (const PretokenizerRule& rule : pretokenizer_rules()) {
    for (const std::string_view name : names_of(rule.names)) {
      const std::vector<std::string_view> words = Pretokenizer(name).split(bytes);
      const char* next = bytes.data();
      for (const std::string_view word : words) {
        ASSERT_FALSE(word.empty()) << name;
        ASSERT_EQ(word.data(), next) << name;
        next += word.size();
      }
      EXPECT_EQ(next, bytes.data() + bytes.size()) << name;
    }
  }
}

TEST(Pretokenizer, InvalidBytesAreWordsOfTheirOwn) {
  EXPECT_EQ(joined(Pretokenizer("gpt-2").split("ab\xFF"
                                               "cd \xE2\x82 x")),
            "ab¦\xFF¦cd¦ ¦\xE2¦\x82¦ x");
}

TEST(Pretokenizer, UnknownNamesAreRefusedWithTheKnownOnes) {
  try {
    Pretokenizer("esperanto");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("'esperanto'"),
                                             testing::HasSubstr("llama-bpe"), testing::HasSubstr("tekken")));
  }
}

TEST(Pretokenizer, OnlyNamesOfTheTableMatchNotPartsOfIt) {
  EXPECT_THROW(Pretokenizer("llama"), FileError);
  EXPECT_THROW(Pretokenizer(""), FileError);
  EXPECT_THROW(Pretokenizer("gpt-2 phi-2"), FileError);
}

TEST(Pretokenizer, LongRunsTakeLinearTime) {
  // Texts that would make a backtracking or searching engine quadratic: runs that almost match, with a
  // tail that breaks them.
  const std::string units[] = {"a", "A",  " ",      "\n", " \n", "!",      "1", "aA",
                               "é", "中", "\u0301", "'",  "ſ",   "\u3000", "\t"};
  for (const PretokenizerRule& rule : pretokenizer_rules()) {
    const Pretokenizer pretokenizer(names_of(rule.names).front());
    for (const std::string& unit : units) {
      std::string text;
      while (text.size() < (1 << 18))
        text += unit;
      text += "x";
      const double start = test::thread_cpu_seconds();
      const size_t count = pretokenizer.split(text).size();
      EXPECT_GT(count, 0U);
      // 256 KiB take 2 to 30 ms; quadratic time would take minutes.
      EXPECT_LT(test::thread_cpu_seconds() - start, 30.0)
          << names_of(rule.names).front() << " '" << unit << "'";
    }
  }
}

TEST(Pretokenizer, AWordOf200000LettersIsOneWord) {
  std::string letters;
  for (int i = 0; i < 100000; ++i)
    letters += "ab";
  for (const PretokenizerRule& rule : pretokenizer_rules()) {
    const std::string_view name = names_of(rule.names).front();
    EXPECT_EQ(Pretokenizer(name).split(letters).size(), 1U) << name;
  }
}

}  // namespace
}  // namespace minfer
