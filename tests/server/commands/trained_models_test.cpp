// A trained model as people use it: ids of rendered chats, and an answer that is held to a schema. Skipped if the file is missing.
#include <gtest/gtest.h>

#include "tests/support/engine/trained_model.h"
#include "tests/support/sanitizers.h"
#include "tests/support/server/command_line.h"

namespace minfer {
namespace {

using test::Outcome;

class TrainedModelCommands : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = test::trained_model(test::kSmolLm2);
    if (!path) GTEST_SKIP() << test::kNoTrainedModel;
    if (test::kSanitized) GTEST_SKIP() << "takes minutes with a sanitizer: the build without has it";
    model_ = path->string();
  }

  const nlohmann::json reference_ = test::trained_reference(test::kSmolLm2);
  std::string model_;
  test::CommandLine line_;
};

/// Among them a tool loop whose assistant says nothing beside its call (`content: null`).
TEST_F(TrainedModelCommands, ChatsHaveTheIdsOfTokenizers) {
  ASSERT_GE(reference_.at("chat").size(), 3u);
  for (const nlohmann::json& chat : reference_.at("chat")) {
    line_.write("chat.json",
                nlohmann::json{{"messages", chat.at("messages")}, {"add_generation_prompt", true}}.dump());
    const Outcome outcome = line_.minfer("tokenize '" + model_ + "' --chat chat.json --ids");
    ASSERT_EQ(outcome.exit_code, 0) << chat.at("name") << ": " << outcome.err;
    std::istringstream words(outcome.out);
    const std::vector<TokenId> ids{std::istream_iterator<TokenId>(words), {}};
    EXPECT_EQ(ids, chat.at("ids").get<std::vector<TokenId>>()) << chat.at("name");
  }
}

TEST_F(TrainedModelCommands, AnAnswerBySchemaIsThatOfAMaskOverTransformers) {
  // The members of an answer come in the schema's order.
  const auto expected =
      nlohmann::ordered_json::parse(test::read_whole(std::string("tests/real/") + test::kSmolLm2 + ".json"))
          .at("schema");
  line_.write("schema.json", expected.at("schema").dump());
  const Outcome outcome =
      line_.minfer("run '" + model_ + "' --device cpu --chat '" +
                   reference_.at("chat").at(0).at("messages").at(0).at("content").get<std::string>() +
                   "' --temperature 0 -n 100 --json-schema schema.json --quiet </dev/null");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.substr(0, outcome.out.find_last_of('}') + 1), expected.at("text").get<std::string>());
}

}  // namespace
}  // namespace minfer
