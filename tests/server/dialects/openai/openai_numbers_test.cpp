// Every numeric field of both endpoints with every kind of value: a number in range is accepted, anything
// else is refused with 400 and a message that names the field. There is no other result.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/dialects/openai/openai.h"
#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

struct NumericField {
  std::string name;  ///< as in `param`
  bool chat;
  bool completions;
  bool integer;
  std::vector<std::string> good;  ///< values at the ends of the range, and some within
  std::vector<std::string> bad;   ///< just outside of it
  /// The field in a body, with "#" in place of its value.
  std::string members;
};

NumericField both(std::string name, bool integer, std::vector<std::string> good, std::vector<std::string> bad,
                  std::string more = {}) {
  const std::string members = fmt::format("\"{}\":#{}", name, more);
  return {std::move(name), true, true, integer, std::move(good), std::move(bad), members};
}

NumericField only(const Dialect& dialect, NumericField field) {
  field.chat = dialect.is_chat;
  field.completions = !field.chat;
  return field;
}

std::vector<NumericField> numeric_fields() {
  const std::string int_max = "2147483647";
  const std::string int_over = "2147483648";
  std::vector<NumericField> fields{
      both("n", true, {"1", "128", "1.0", "1e2"}, {"0", "-1", "129", "1.5"}),
      both("temperature", false, {"0", "2", "0.7", "1e-300", "-0.0"}, {"-0.001", "2.0001"}),
      both("top_p", false, {"1", "0.001"}, {"0", "-0.5", "1.0001", "1e-300"}),
      both("top_k", true, {"-1", "0", "1", int_max}, {"-2", int_over, "0.5"}),
      both("min_p", false, {"0", "1"}, {"-0.1", "1.1"}),
      both("repetition_penalty", false, {"0.01", "100"}, {"0", "-1", "100.1"}),
      both("presence_penalty", false, {"-2", "2", "0"}, {"-2.1", "2.1"}),
      both("frequency_penalty", false, {"-2", "2", "0"}, {"-2.1", "2.1"}),
      both("seed", true, {"0", "-1", "9223372036854775807", "-9223372036854775808"},
           {"9223372036854775808", "-9223372036854775809", "0.5"}),
      both("max_tokens", true, {"1", "900"}, {"0", "-1", int_over, "1.5"}),
      both("min_tokens", true, {"0", "1", "16"}, {"-1", int_over}, ",\"max_tokens\":16"),
      both("stream_interval", true, {"4", int_max}, {"3", "0", "-1", int_over}, ",\"stream\":true"),
      both("priority", true, {"0", "-2147483648", int_max}, {int_over, "-2147483649"}),
      only(kCompletionsDialect, both("logprobs", true, {"0", "20"}, {"-1", "21"})),
      only(kCompletionsDialect, both("best_of", true, {"1"}, {"0", "-1", "2"})),
      only(kChatDialect, both("top_logprobs", true, {"0", "20"}, {"-1", "21"}, ",\"logprobs\":true")),
      only(kChatDialect, both("max_completion_tokens", true, {"1", "900"}, {"0", "-1", int_over})),
  };
  NumericField bias = both("logit_bias.7", false, {"-100", "100", "0"}, {"-100.1", "100.1"});
  bias.members = "\"logit_bias\":{\"7\":#}";
  fields.push_back(bias);
  NumericField stop_token = both("stop_token_ids[1]", true, {"0", "7"}, {"-1", "100000"});
  stop_token.members = "\"stop_token_ids\":[1,#]";
  fields.push_back(stop_token);
  return fields;
}

/// Values that are a number for no field.
const std::vector<std::string> kNoNumbers{"\"NaN\"", "\"nan\"", "\"1\"", "\"\"", "\"-Infinity\"", "true",
                                          "false",   "[]",      "[1]",   "{}",   "{\"a\":1}"};
/// Numbers beyond every range.
const std::vector<std::string> kHuge{"1e300", "-1e300", "123456789012345678901234567890",
                                     "-123456789012345678901234567890"};
/// Not JSON: the message names the place instead of the field.
const std::vector<std::string> kNoJson{"NaN", "Infinity", "-Infinity", "1e400", "-1e400", "+1", "0x10", "01"};

class OpenAiNumbersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    api_.context.stream_interval = 4;
    api_.context.schedules_by_priority = true;
  }

  template <class Check>
  void for_each_endpoint(const NumericField& field, const std::string& value, Check check) {
    std::string members = field.members;
    members.replace(members.find('#'), 1, value);
    const std::string where = field.name + " = " + value;
    if (field.chat) {
      check(test::api_error_of([&] { api_.chat(members); }), where + " (chat)");
    }
    if (field.completions) {
      check(test::api_error_of([&] { api_.completion(members); }), where + " (completions)");
    }
  }

  void expect_taken(const NumericField& field, const std::string& value) {
    for_each_endpoint(field, value, [](const std::optional<ApiError>& error, const std::string& where) {
      EXPECT_FALSE(error) << where << ": " << error->what();
    });
  }

  /// Checks that the engine accepts it too.
  void expect_valid(const NumericField& field, const std::string& value) {
    std::string members = field.members;
    members.replace(members.find('#'), 1, value);
    EXPECT_NO_THROW(api_.completion(members).sampling.validate(api_.context.vocab_size))
        << field.name << " = " << value;
  }

  void expect_refused(const NumericField& field, const std::string& value, bool names_field) {
    for_each_endpoint(field, value, [&](const std::optional<ApiError>& error, const std::string& where) {
      ASSERT_TRUE(error) << where;
      EXPECT_EQ(error->status(), 400) << where;
      EXPECT_EQ(error->param(), names_field ? field.name : "") << where << ": " << error->what();
      EXPECT_NE(std::string(error->what()).find(names_field ? field.name : "JSON"), std::string::npos)
          << where << ": " << error->what();
    });
  }

  test::TestApi api_;
};

TEST_F(OpenAiNumbersTest, ValuesInRangeAreTaken) {
  for (const NumericField& field : numeric_fields()) {
    for (const std::string& value : field.good) {
      expect_taken(field, value);
      if (field.completions) expect_valid(field, value);
    }
  }
}

// Integers are exact up to 64 bits, doubles below 2^53.
TEST_F(OpenAiNumbersTest, LargeIntegersDoNotBecomeOthers) {
  const auto seed = [&](const std::string& number) {
    return *api_.completion("\"seed\":" + number).sampling.seed;
  };
  EXPECT_EQ(seed("9007199254740993"), 9007199254740993u);
  EXPECT_EQ(seed("9223372036854775807"), 9223372036854775807u);
  EXPECT_EQ(seed("9007199254740991.0"), 9007199254740991u);
  EXPECT_THROW(seed("9007199254740993.0"), ApiError);
  EXPECT_THROW(seed("9223372036854775808"), ApiError);
}

TEST_F(OpenAiNumbersTest, ValuesOutOfRangeAreRefusedByName) {
  for (const NumericField& field : numeric_fields()) {
    for (const std::string& value : field.bad)
      expect_refused(field, value, true);
    for (const std::string& value : kHuge)
      expect_refused(field, value, true);
    if (field.integer) expect_refused(field, "0.5", true);
  }
}

TEST_F(OpenAiNumbersTest, WhatIsNoNumberIsRefusedByName) {
  for (const NumericField& field : numeric_fields()) {
    for (const std::string& value : kNoNumbers)
      expect_refused(field, value, true);
  }
}

TEST_F(OpenAiNumbersTest, WhatIsNoJsonIsRefused) {
  for (const NumericField& field : numeric_fields()) {
    for (const std::string& value : kNoJson)
      expect_refused(field, value, false);
  }
}

TEST_F(OpenAiNumbersTest, NullIsAbsentButNotInsideLists) {
  for (const NumericField& field : numeric_fields()) {
    const bool inside = field.name.find_first_of("[.") != std::string::npos;
    inside ? expect_refused(field, "null", true) : expect_taken(field, "null");
  }
}

TEST_F(OpenAiNumbersTest, TokenIdsOfPromptsAreInTheVocabulary) {
  const std::string size = std::to_string(api_.context.vocab_size);
  for (const std::string& value : {std::string("-1"), size, std::string("1e300"), std::string("0.5"),
                                   std::string("true"), std::string("\"1\""), std::string("null"),
                                   std::string("4294967296"), std::string("18446744073709551615")}) {
    for (const auto& [list, param] :
         {std::pair<std::string, std::string>{"[1," + value + "]", "prompt[1]"},
          std::pair<std::string, std::string>{"[[1],[2," + value + "]]", "prompt[1][1]"}}) {
      const std::string body = R"({"model":"small","prompt":)" + list + "}";
      const auto error = test::api_error_of([&] { parse_completion_request(body, api_.context); });
      ASSERT_TRUE(error) << body;
      EXPECT_EQ(error->status(), 400) << body;
      EXPECT_EQ(error->param(), param) << body;
    }
    const std::string body = R"({"model":"small","tokens":[1,)" + value + "]}";
    UnknownFields unknown(false);
    const auto error = test::api_error_of([&] { detokenize_response(body, api_.context, unknown); });
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->param(), "tokens[1]") << body;
  }
}

}  // namespace
}  // namespace minfer
