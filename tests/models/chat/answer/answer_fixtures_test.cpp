// Every fixture of every format: whole, in pieces, and cut off at every byte.
#include "tests/support/models/answer_fixtures.h"

#include <algorithm>
#include <memory>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/chat/answer/chat_answer_parser.h"
#include "models/tokenizer/utf8.h"
#include "tests/support/models/parsed_answer.h"

namespace minfer {
namespace {

using nlohmann::ordered_json;
using test::AnswerFixture;
using test::parse_answer;
using test::ParsedAnswer;
using test::pieces_of;

ChatAnswerOptions options_of(const AnswerFixture& fixture) {
  ChatAnswerOptions options{.finds_calls = fixture.finds_calls,
                            .finds_reasoning = fixture.finds_reasoning,
                            .begins_in_reasoning = fixture.begins_in_reasoning};
  if (!fixture.tools.empty())
    options.tools = std::make_shared<const ordered_json>(ordered_json::parse(fixture.tools));
  return options;
}

ParsedAnswer parse(const AnswerFixture& fixture, std::string_view text,
                   const std::vector<size_t>& cuts = {}) {
  const ChatFormat* format = find_chat_format(fixture.format);
  EXPECT_NE(format, nullptr) << fixture.format;
  const auto parser = make_chat_answer_parser(format, options_of(fixture));
  return parse_answer(*parser, pieces_of(text, cuts));
}

ParsedAnswer parse(const AnswerFixture& fixture) {
  return parse(fixture, fixture.text);
}

ParsedAnswer expected_of(const AnswerFixture& fixture) {
  ParsedAnswer expected;
  expected.content = fixture.content;
  expected.reasoning = fixture.reasoning;
  for (const AnswerFixture::Call& call : fixture.calls)
    expected.calls.push_back({call.name, call.arguments, call.is_whole});
  return expected;
}

std::string show(const ParsedAnswer& answer) {
  ordered_json shown = {{"content", answer.content},
                        {"reasoning", answer.reasoning},
                        {"problem", answer.problem},
                        {"violation", answer.violation},
                        {"calls", ordered_json::array()}};
  for (const ParsedAnswer::Call& call : answer.calls)
    shown["calls"].push_back({call.name, call.arguments, call.is_whole});
  return shown.dump(1, ' ', false, ordered_json::error_handler_t::replace);
}

/// Calls `check` with every fixture.
template <class Check>
void for_every_fixture(const Check& check) {
  for (const AnswerFixture& fixture : test::answer_fixtures()) {
    SCOPED_TRACE(fixture.name);
    check(fixture);
  }
}

void check_whole(const AnswerFixture& fixture) {
  ParsedAnswer answer = parse(fixture);
  EXPECT_EQ(!answer.problem.empty(), fixture.has_problem) << answer.problem;
  answer.problem.clear();
  EXPECT_EQ(show(answer), show(expected_of(fixture)));
  for (const ParsedAnswer::Call& call : answer.calls) {
    if (!call.is_whole) continue;
    EXPECT_TRUE(ordered_json::parse(call.arguments).is_object());
  }
}

TEST(AnswerFixtures, Whole) {
  for_every_fixture(check_whole);
}

void check_in_pieces(const AnswerFixture& fixture) {
  const std::string whole = show(parse(fixture));
  const size_t size = fixture.text.size();
  for (size_t cut = 0; cut <= size; ++cut)
    ASSERT_EQ(show(parse(fixture, fixture.text, {cut})), whole) << "cut at " << cut;

  std::vector<size_t> every(size);
  for (size_t i = 0; i < size; ++i)
    every[i] = i;
  ASSERT_EQ(show(parse(fixture, fixture.text, every)), whole) << "byte by byte";

  std::mt19937 random(fixture.text.size());
  for (int round = 0; round < 50; ++round) {
    std::vector<size_t> cuts(1 + random() % 8);
    for (size_t& cut : cuts)
      cut = random() % (size + 1);
    std::sort(cuts.begin(), cuts.end());
    ASSERT_EQ(show(parse(fixture, fixture.text, cuts)), whole) << "round " << round;
  }
}

TEST(AnswerFixtures, InPieces) {
  for_every_fixture(check_in_pieces);
}

void check_whole_characters_stay_whole(const AnswerFixture& fixture) {
  const auto parser = make_chat_answer_parser(find_chat_format(fixture.format), options_of(fixture));
  std::vector<ChatDelta> deltas;
  std::string_view rest = fixture.text;
  while (!rest.empty()) {
    const size_t length = read_utf8(rest).length;
    parser->push(rest.substr(0, length), deltas);
    rest.remove_prefix(length);
  }
  parser->finish(deltas);
  for (const ChatDelta& delta : deltas)
    EXPECT_EQ(valid_utf8_prefix(delta.text), delta.text.size()) << delta.text;
}

TEST(AnswerFixtures, WholeCharactersStayWhole) {
  for_every_fixture(check_whole_characters_stay_whole);
}

/// Expects `cut`, from an answer that ended within `text`, to be the beginning of `whole`, then only bytes that ended the answer.
void expect_beginning(const std::string& cut, const std::string& whole, std::string_view text) {
  const size_t same = static_cast<size_t>(
      std::mismatch(cut.begin(), cut.end(), whole.begin(), whole.end()).first - cut.begin());
  EXPECT_TRUE(text.ends_with(std::string_view(cut).substr(same))) << cut << "\nis not the beginning of\n"
                                                                  << whole;
}

void check_cut_off_at_every_byte(const AnswerFixture& fixture) {
  const ParsedAnswer whole = parse(fixture);
  for (size_t size = 0; size < fixture.text.size(); ++size) {
    SCOPED_TRACE(size);
    const std::string_view text = std::string_view(fixture.text).substr(0, size);
    const ParsedAnswer cut = parse(fixture, text);
    EXPECT_EQ(cut.violation, "");
    expect_beginning(cut.content, whole.content, text);
    expect_beginning(cut.reasoning, whole.reasoning, text);
    ASSERT_LE(cut.calls.size(), whole.calls.size());
    for (size_t i = 0; i < cut.calls.size(); ++i) {
      EXPECT_EQ(cut.calls[i].name, whole.calls[i].name);
      EXPECT_TRUE(whole.calls[i].arguments.starts_with(cut.calls[i].arguments));
      EXPECT_TRUE(!cut.calls[i].is_whole || cut.calls[i].arguments == whole.calls[i].arguments);
    }
    if (testing::Test::HasFailure()) break;
  }
}

TEST(AnswerFixtures, CutOffAtEveryByte) {
  for_every_fixture(check_cut_off_at_every_byte);
}

/// Fixtures with bytes lost, doubled and changed: the cuts do not matter, and a complete call has a JSON object.
void check_damaged(const AnswerFixture& fixture) {
  std::mt19937 random(fixture.text.size());
  for (int round = 0; round < 200; ++round) {
    std::string text = fixture.text;
    for (auto changes = 1 + random() % 3; changes > 0 && !text.empty(); --changes) {
      const size_t at = random() % text.size();
      const size_t length = std::min<size_t>(1 + random() % 8, text.size() - at);
      const std::string part = text.substr(random() % text.size(), length);
      text.replace(at, random() % 2 == 0 ? length : 0, random() % 2 == 0 ? part : "");
    }
    const ParsedAnswer whole = parse(fixture, text);
    EXPECT_EQ(whole.violation, "") << text;
    for (const ParsedAnswer::Call& call : whole.calls) {
      const bool is_utf8 = valid_utf8_prefix(text) == text.size();
      EXPECT_TRUE(!call.is_whole || !is_utf8 || call.arguments.find("\\ud") != std::string::npos ||
                  ordered_json::accept(call.arguments))
          << text;
    }
    std::vector<size_t> every(text.size());
    for (size_t i = 0; i < every.size(); ++i)
      every[i] = i;
    ASSERT_EQ(show(parse(fixture, text, every)), show(whole)) << text;
  }
}

TEST(AnswerFixtures, Damaged) {
  for_every_fixture(check_damaged);
}

std::string without_spaces(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(), [](unsigned char c) { return std::isspace(c); }),
             text.end());
  return text;
}

/// If no call came out of an answer, nothing of it is lost except the marker that opens thoughts. (Not for Harmony, whose message
/// headers are no content.)
TEST(AnswersCutOff, LoseNothing) {
  int num_checked = 0;
  for (const AnswerFixture& fixture : test::answer_fixtures()) {
    if (fixture.format == "gpt_oss") continue;
    SCOPED_TRACE(fixture.name);
    for (size_t size = 0; size <= fixture.text.size(); ++size) {
      const std::string text = fixture.text.substr(0, size);
      const ParsedAnswer cut = parse(fixture, text);
      if (!cut.calls.empty() || !cut.reasoning.empty()) break;
      std::string left = without_spaces(text);
      for (const std::string_view marker :
           {"<think>", "</think>", "[THINK]", "◁think▷", "<seed:think>", "<|channel>thought",
            "Hereismythoughtprocess:", "Here'smythoughtprocess:"}) {
        if (without_spaces(cut.content) != left && left.starts_with(marker)) left.erase(0, marker.size());
      }
      ASSERT_EQ(without_spaces(cut.content), left);
      ++num_checked;
    }
  }
  EXPECT_GT(num_checked, 1000);
}

TEST(AnswerFixtureTable, HasEveryFormat) {
  for (const std::string& name : chat_format_names()) {
    const auto& fixtures = test::answer_fixtures();
    EXPECT_TRUE(std::any_of(fixtures.begin(), fixtures.end(), [&](const AnswerFixture& fixture) {
      return fixture.format == name;
    })) << name;
  }
}

}  // namespace
}  // namespace minfer
