// The output of minfer tokenize.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "server/commands/commands.h"
#include "tests/support/models/gguf_builder.h"
#include "tests/support/models/vocabularies.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

class TokenizeCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Vocabulary vocabulary = test::small_sentencepiece_vocabulary();
    std::vector<int32_t> types;
    for (const TokenType type : vocabulary.types)
      types.push_back(static_cast<int32_t>(type));
    test::GgufBuilder builder;
    builder.add("tokenizer.ggml.model", "llama").add("tokenizer.ggml.tokens", vocabulary.tokens);
    builder.add("tokenizer.ggml.token_type", types).add("tokenizer.ggml.scores", vocabulary.scores);
    builder.write(path_);
  }

  /// Standard output of `minfer tokenize --model FILE ARGUMENTS`.
  std::string run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--model", path_.string()});
    return run_with(std::move(arguments));
  }

  static std::string run_with(std::vector<std::string> arguments) {
    CLI::App app;
    add_tokenize_command(app);
    arguments.insert(arguments.begin(), "tokenize");
    std::reverse(arguments.begin(), arguments.end());  // the order that CLI::App::parse expects
    testing::internal::CaptureStdout();
    try {
      app.parse(arguments);
    } catch (...) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    std::fflush(stdout);
    return testing::internal::GetCapturedStdout();
  }

  test::TemporaryDirectory dir_;
  std::filesystem::path path_ = dir_.path() / "vocabulary.gguf";
};

TEST_F(TokenizeCommandTest, PrintsIds) {
  EXPECT_EQ(run({"--ids", "the"}), "1 263\n");
  EXPECT_EQ(run({"--ids", "--no-bos", "the"}), "263\n");
  EXPECT_EQ(run({"--ids", "--no-bos", ""}), "\n");
}

TEST_F(TokenizeCommandTest, PrintsATableOfIdsAndPieces) {
  EXPECT_EQ(run({"the\n"}), "      1  '<s>'  (control)\n    263  ' the'\n     13  '\\n'\n");
}

TEST_F(TokenizeCommandTest, ParsesSpecialTokensUnlessToldOtherwise) {
  EXPECT_EQ(run({"--ids", "--no-bos", "</s>"}), "2\n");
  EXPECT_NE(run({"--ids", "--no-bos", "--no-parse-special", "</s>"}), "2\n");
}

TEST_F(TokenizeCommandTest, DecodingUndoesEncodingWithTheSameOptions) {
  const std::string text = "  the</s>an\n\xFF";
  for (const std::vector<std::string>& options : {std::vector<std::string>{},
                                                  {"--no-bos"},
                                                  {"--no-parse-special"},
                                                  {"--no-bos", "--no-parse-special"}}) {
    std::vector<std::string> encode = options;
    encode.insert(encode.end(), {"--ids", text});
    std::vector<std::string> decode = options;
    decode.insert(decode.end(), {"--decode", run(encode)});
    EXPECT_EQ(run(decode), text);
  }
}

TEST_F(TokenizeCommandTest, UsesTheDemoModelUnlessToldOtherwise) {
  const std::string ids = run_with({"--ids", "--no-bos", "Once upon a time"});
  EXPECT_EQ(run_with({"--decode", "--no-bos", ids}), "Once upon a time");
}

TEST_F(TokenizeCommandTest, KnowsSyntheticModelsWithoutMakingTheirWeights) {
  // One token a byte, after <unk> <s> </s>; this model's weights would take 16 GB.
  EXPECT_EQ(run_with({"--model", "synthetic:llama-3.1-8b", "--ids", "--no-bos", "az"}), "100 125\n");
  EXPECT_THROW(run_with({"--model", "synthetic:nothing", "a"}), Error);
}

TEST_F(TokenizeCommandTest, ShowsWhatAModelSeesOfAConversation) {
  const std::string chat = (dir_.path() / "chat.json").string();
  std::ofstream(chat)
      << R"({"messages": [{"role": "user", "content": "the</s>"}], "add_generation_prompt": true})";
  const std::string chat_template = (dir_.path() / "chat.jinja").string();
  std::ofstream(chat_template) << "{{ bos_token }}{{ messages[0].content }}</s>"
                               << "{% if add_generation_prompt %}the{% endif %}\n";
  EXPECT_EQ(run({"--chat", chat, "--chat-template", chat_template, "--print-text"}), "<s>the</s></s>the");
  const std::string user_text = run({"--ids", "--no-bos", "--no-parse-special", "the</s>"});
  EXPECT_EQ(run({"--chat", chat, "--chat-template", chat_template, "--ids"}),
            "1 " + user_text.substr(0, user_text.size() - 1) + " 2 263\n");
  EXPECT_NE(run({"--chat", chat, "--chat-template", chat_template}).find("'<s>'  (control)"),
            std::string::npos);
}

TEST_F(TokenizeCommandTest, UsesTheModelsOwnChatTemplate) {
  const std::string chat = (dir_.path() / "chat.json").string();
  std::ofstream(chat) << R"({"messages": [{"role": "user", "content": "Hi"}]})";
  EXPECT_EQ(run_with({"--chat", chat, "--print-text"}), "<s><|user|>\nHi<|end|>");
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"--chat", chat, "--print-text"}), "<s><|im_start|>user\nHi<|im_end|>\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "the model has no chat template: default chat template ChatML, though its vocabulary has the "
            "tokens of no known template\n");
}

TEST_F(TokenizeCommandTest, RefusesAConversationThatCannotBeRendered) {
  const std::string chat = (dir_.path() / "chat.json").string();
  const std::string chat_template = (dir_.path() / "chat.jinja").string();
  std::ofstream(chat_template) << "{{ messages[0].content }}";
  EXPECT_THROW(run({"--chat", "/nonexistent"}), FileError);
  std::ofstream(chat) << "{";
  EXPECT_THROW(run({"--chat", chat, "--chat-template", chat_template}), Error);
  std::ofstream(chat) << R"({"messages": []})";
  EXPECT_THROW(run({"--chat", chat, "--chat-template", chat_template}), Error);
  std::ofstream(chat_template) << "{% if %}";
  EXPECT_THROW(run({"--chat", chat, "--chat-template", chat_template}), Error);
  EXPECT_THROW(run({"--chat", chat, "--decode"}), CLI::ParseError);
  EXPECT_THROW(run({"--print-text", "the"}), CLI::ParseError);
}

TEST_F(TokenizeCommandTest, RefusesWhatIsNoId) {
  for (const char* ids : {"x", "1 2x", "1.5", "99999", "-1", "99999999999999999999"}) {
    EXPECT_THROW(run({"--decode", "--", ids}), Error) << ids;
  }
  EXPECT_EQ(run({"--decode", "263, 263\n"}), "the the");
}

}  // namespace
}  // namespace minfer
