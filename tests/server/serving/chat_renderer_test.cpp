// The server's chat template: the model's own, a file's, a default, or an unusable one.
#include "server/serving/completion/chat_renderer.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "models/chat/chat_template.h"
#include "models/decoder/weights/model_source.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using nlohmann::ordered_json;

const ordered_json kVariables = {{"messages", {{{"role", "user"}, {"content", "Hi<|end|>"}}}},
                                 {"add_generation_prompt", true}};

class ChatRenderer : public testing::Test {
 protected:
  static Engine make_engine(const std::string& model) {
    return Engine(open_model(model), {.device = DeviceChoice::cpu, .max_model_len = 64, .num_blocks = 8});
  }
  static std::string text_of(const std::vector<PromptPart>& parts) {
    std::string text;
    for (const PromptPart& part : parts)
      text += part.text;
    return text;
  }
  std::string write_template(const std::string& text) const {
    const auto path = dir_.path() / "chat.jinja";
    std::ofstream(path) << text;
    return path.string();
  }

  test::TemporaryDirectory dir_;
  ServerLog log_{LogFormat::text, LogLevel::off};
};

TEST_F(ChatRenderer, UsesTheModelsOwnTemplate) {
  const Engine engine = make_engine("");
  const auto render = make_chat_renderer("", engine.model(), engine.tokenizer(), log_);
  const std::vector<PromptPart> parts = render(kVariables).parts;
  EXPECT_EQ(text_of(parts), "<s><|user|>\nHi<|end|><|end|><|assistant|>\n");
  EXPECT_EQ(parts[1].text, "Hi<|end|>");
  EXPECT_FALSE(parts[1].parse_special);
}

TEST_F(ChatRenderer, UsesAFilesTemplate) {
  const Engine engine = make_engine("");
  EXPECT_EQ(text_of(make_chat_renderer(write_template("[{{ messages|length }}]"), engine.model(),
                                       engine.tokenizer(), log_)(kVariables)
                        .parts),
            "[1]");
  EXPECT_THROW(make_chat_renderer(write_template("{% if %}"), engine.model(), engine.tokenizer(), log_),
               jinja::TemplateError);
  EXPECT_THROW(make_chat_renderer("/nonexistent", engine.model(), engine.tokenizer(), log_), FileError);
}

TEST_F(ChatRenderer, PassesOnWhyATemplateRefuses) {
  const Engine engine = make_engine("");
  const auto render = make_chat_renderer(write_template("{{ raise_exception('Only tools!') }}"),
                                         engine.model(), engine.tokenizer(), log_);
  EXPECT_THAT([&] { render(kVariables); }, testing::ThrowsMessage<Error>("Only tools!"));
}

TEST_F(ChatRenderer, HasADefault) {
  const Engine engine = make_engine("synthetic:tiny:q8_0");
  EXPECT_THAT(text_of(make_chat_renderer("", engine.model(), engine.tokenizer(), log_)(kVariables).parts),
              testing::HasSubstr("<|im_start|>user\n"));
}

}  // namespace
}  // namespace minfer
