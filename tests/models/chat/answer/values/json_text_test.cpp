// JSON that arrives byte by byte: its values, their ends, and the content of its strings, against the JSON library.
#include "models/chat/answer/values/json_text.h"

#include <array>
#include <random>
#include <regex>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace minfer::answers {
namespace {

using nlohmann::ordered_json;

ordered_json random_json(std::mt19937& random, int depth) {
  switch (random() % (depth > 0 ? 9 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<int>(random() % 2000) - 1000;
    case 3:
      return static_cast<double>(random()) / 7e5;
    case 4:
      return "a\"\\/\b\n\x01 é 日 😀";
    case 5:
      return std::string(random() % 3, 'x');
    case 6:
      return ordered_json::object();
    case 7: {
      ordered_json array = ordered_json::array();
      for (auto i = random() % 4; i > 0; --i)
        array.push_back(random_json(random, depth - 1));
      return array;
    }
    default: {
      ordered_json object = ordered_json::object();
      for (auto i = random() % 4; i > 0; --i)
        object["key \"" + std::to_string(i)] = random_json(random, depth - 1);
      return object;
    }
  }
}

TEST(JsonValue, IsWhatTheLibraryReads) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const ordered_json value = random_json(random, 5);
    const std::string text = value.dump(random() % 2 == 0 ? -1 : 2, ' ', random() % 2 == 0);
    EXPECT_EQ(json_value(text), text);
    EXPECT_EQ(json_value(" \n" + text + "\t "), text);
  }
}

TEST(JsonValue, IsRefusedWhereTheLibraryRefusesIt) {
  // Numbers beyond a double's range and halves of surrogate pairs are JSON by its grammar, but the library refuses them.
  const std::regex beyond_library(R"([eE]\+?\d{3}|\\u[dD])");
  constexpr std::string_view kBytes = "{}[]\",:0123456789.-+eEtrufalsn\\ ";
  std::mt19937 random(2);
  int num_valid = 0;
  int num_invalid = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = random_json(random, 3).dump(-1, ' ', true);
    for (auto changes = 1 + random() % 2; changes > 0; --changes) {
      const size_t at = random() % (text.size() + 1);
      const std::string byte(1, kBytes[random() % kBytes.size()]);
      text.replace(at, random() % 2, random() % 3 == 0 ? "" : byte);
    }
    if (std::regex_search(text, beyond_library)) continue;
    const bool is_valid = ordered_json::accept(text);
    ++(is_valid ? num_valid : num_invalid);
    EXPECT_EQ(!json_value(text).empty(), is_valid) << text;
  }
  EXPECT_GT(num_valid, 1000);
  EXPECT_GT(num_invalid, 1000);
}

TEST(JsonValue, NestsToALimit) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(json_value(nested(kMaxJsonDepth)), nested(kMaxJsonDepth));
  EXPECT_EQ(json_value(nested(kMaxJsonDepth + 1)), "");
}

TEST(JsonValue, EscapesControlCharacters) {
  EXPECT_EQ(json_value("[\"a\nb\tc\x01\", 1]"), R"(["a\nb\tc\u0001", 1])");
}

TEST(JsonScanner, KnowsWhereAValueEnds) {
  const auto end_of = [](std::string_view text) {
    JsonScanner scanner;
    std::string value;
    for (size_t i = 0; i < text.size(); ++i) {
      const ReadStep step = scanner.push(text[i], value);
      if (step != ReadStep::more) return std::make_pair(step, i);
    }
    return std::make_pair(ReadStep::more, text.size());
  };
  EXPECT_EQ(end_of(R"({"a": "}"}})"), std::make_pair(ReadStep::done, size_t{9}));
  EXPECT_EQ(end_of(R"("a\"b"c)"), std::make_pair(ReadStep::done, size_t{5}));
  EXPECT_EQ(end_of("-12,"), std::make_pair(ReadStep::ended, size_t{3}));
  EXPECT_EQ(end_of("true"), std::make_pair(ReadStep::done, size_t{3}));
  EXPECT_EQ(end_of("[1, 2"), std::make_pair(ReadStep::more, size_t{5}));
  EXPECT_EQ(end_of("[1 2"), std::make_pair(ReadStep::failed, size_t{3}));
}

std::string decode(std::string_view escaped) {
  JsonStringDecoder decoder;
  std::string text;
  for (const char c : escaped) {
    const ReadStep step = decoder.push(c, text);
    if (step == ReadStep::failed) return "failed";
    if (step == ReadStep::done) return text;
  }
  return "not ended";
}

TEST(JsonStringDecoder, UndoesEscapes) {
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (auto j = random() % 10; j > 0; --j)
      text += std::array{"a", "\"", "\\", "\n", "\x01", "é", "日", "😀", "/", "\x7f"}[random() % 10];
    EXPECT_EQ(decode(ordered_json(text).dump(-1, ' ', i % 2 == 0).substr(1)), text);
  }
  EXPECT_EQ(decode(R"(\/\b\f\u00E9")"), "/\b\fé");
  EXPECT_EQ(decode(R"(\ud83dx\ude00\ud83d\ud83d\ude00\ud83d")"), "�x��😀�");
  EXPECT_EQ(decode(R"(\x")"), "failed");
  EXPECT_EQ(decode(R"(\u12g4")"), "failed");
  EXPECT_EQ(decode("abc"), "not ended");
}

}  // namespace
}  // namespace minfer::answers
