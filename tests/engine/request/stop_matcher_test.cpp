// Stop strings at every split of a text, against a search of the whole text.
#include <random>

#include <gtest/gtest.h>

#include "engine/request/output_assembler.h"
#include "tests/support/models/text_splits.h"

namespace minfer {
namespace {

/// All strings over `letters` of 1 to `longest` bytes.
std::vector<std::string> all_strings(const std::string& letters, size_t longest) {
  std::vector<std::string> strings{""};
  for (size_t begin = 0; strings.back().size() < longest;) {
    const size_t end = strings.size();
    for (size_t i = begin; i < end; ++i) {
      for (const char letter : letters)
        strings.push_back(strings[i] + letter);
    }
    begin = end;
  }
  strings.erase(strings.begin());
  return strings;
}

/// The longest end of `text` that is the beginning, but not all, of a stop string.
size_t undecided(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (text.ends_with(stop.substr(0, n))) longest = std::max(longest, n);
    }
  }
  return longest;
}

/// Pushes the pieces and checks after each that all decided text is let through, and no undecided text. At
/// the end the result must equal the search of the whole text; the first `num_free` pieces may not stop.
/// Returns false at the first difference.
bool agrees(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
            size_t num_free = 0) {
  StopMatcher matcher(stops);
  std::string seen, let_through, matched;
  size_t free_size = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string& piece = pieces[i];
    StopMatcher::Result result = matcher.push(piece, i >= num_free);
    seen += piece;
    if (i < num_free) free_size = seen.size();
    let_through += result.text;
    if (matched.empty()) matched = result.matched;
    const test::StoppedText expected = test::stop_whole_text(seen, stops, free_size);
    const size_t held_back = expected.stop.empty() ? undecided(seen, stops) : 0;
    if (matched != expected.stop) return false;
    if (let_through != expected.text.substr(0, expected.text.size() - held_back)) return false;
  }
  let_through += matcher.finish();
  return let_through == test::stop_whole_text(seen, stops, free_size).text;
}

std::string describe(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  std::string text = "pieces";
  for (const std::string& piece : pieces)
    text += " \"" + piece + '"';
  text += ", stops";
  for (const std::string& stop : stops)
    text += " \"" + stop + '"';
  return text;
}

TEST(StopMatcherTest, EverySplitOfEveryShortTextForEveryPairOfShortStops) {
  const std::vector<std::string> stops = all_strings("ab", 3);
  const std::vector<std::string> texts = all_strings("ab", 6);
  for (const std::string& first : stops) {
    for (const std::string& second : stops) {
      for (const std::string& text : texts) {
        for (uint32_t split = 0; split < test::num_splits(text.size()); ++split) {
          const std::vector<std::string> pieces = test::split_text(text, split);
          ASSERT_TRUE(agrees(pieces, {first, second})) << describe(pieces, {first, second});
        }
      }
    }
  }
}

TEST(StopMatcherTest, StopsThatOverlapThemselvesAndEachOther) {
  const std::vector<std::vector<std::string>> cases{
      {"abab"},          {"aabaaab"},  {"abcab", "bca", "cabcabd"},
      {"aaab", "aaaab"}, {"b", "abc"}, {"abcd", "bcd", "cd"}};
  for (const std::vector<std::string>& stops : cases) {
    for (const std::string text :
         {"aabaabaaabab", "abcabcabdabc", "aaaaaaaaaaab", "xabcxabcdxx", "ababcabca"}) {
      for (uint32_t split = 0; split < test::num_splits(text.size()); ++split) {
        const std::vector<std::string> pieces = test::split_text(text, split);
        ASSERT_TRUE(agrees(pieces, stops)) << describe(pieces, stops);
      }
    }
  }
}

TEST(StopMatcherTest, RandomTextsStopsAndSplits) {
  std::mt19937 random(1);
  const auto random_text = [&](size_t longest) {
    std::string text(1 + random() % longest, 'a');
    for (char& letter : text)
      letter = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 20'000; ++i) {
    const std::vector<std::string> stops{random_text(7), random_text(7), random_text(7)};
    const std::string text = random_text(30);
    const std::vector<std::string> pieces = test::split_text(text, static_cast<uint32_t>(random()));
    ASSERT_TRUE(agrees(pieces, stops)) << describe(pieces, stops);
  }
}

TEST(StopMatcherTest, PiecesThatMayNotStopAreTextThatMayBeginAStop) {
  const std::vector<std::vector<std::string>> cases{{"abab"}, {"aabaaab"},  {"abcab", "bca", "cabcabd"},
                                                    {"aaa"},  {"b", "abc"}, {"abcd", "bcd", "cd"}};
  for (const std::vector<std::string>& stops : cases) {
    for (const std::string text : {"aabaabaaabab", "abcabcabdabc", "aaaaaaaaa", "abababcdab"}) {
      for (uint32_t split = 0; split < test::num_splits(text.size()); ++split) {
        const std::vector<std::string> pieces = test::split_text(text, split);
        for (size_t num_free = 0; num_free <= pieces.size(); ++num_free)
          ASSERT_TRUE(agrees(pieces, stops, num_free)) << describe(pieces, stops) << ", free " << num_free;
      }
    }
  }
}

TEST(StopMatcherTest, LongestOfThoseThatEndAtTheSameByte) {
  StopMatcher matcher({"d", "bcd", "cd"});
  const StopMatcher::Result result = matcher.push("abcde");
  EXPECT_EQ(result.text, "a");
  EXPECT_EQ(result.matched, "bcd");
}

TEST(StopMatcherTest, NothingFollowsAStop) {
  StopMatcher matcher({"stop"});
  EXPECT_EQ(matcher.push("it st").text, "it ");
  EXPECT_EQ(matcher.push("op it").matched, "stop");
  EXPECT_EQ(matcher.push("more").text, "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcherTest, WhatWasHeldBackComesOutAtTheEnd) {
  StopMatcher matcher({"stop"});
  EXPECT_EQ(matcher.push("it sto").text, "it ");
  EXPECT_EQ(matcher.finish(), "sto");
}

TEST(StopMatcherTest, WithoutStopsAllTextPassesAtOnce) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("any").text, "any");
  EXPECT_EQ(matcher.finish(), "");
}

}  // namespace
}  // namespace minfer
