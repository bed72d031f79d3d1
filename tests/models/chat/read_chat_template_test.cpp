// The chat templates that a file names.
#include "models/chat/read_chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/chat/chat_template.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/support/models/gguf_builder.h"

namespace minfer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A file with these templates under tokenizer.chat_template and longer keys; the last entry is the list, if it has names.
struct TemplateFile {
  std::vector<std::byte> bytes;
  GgufFile file;

  explicit TemplateFile(const std::vector<std::pair<std::string, std::string>>& templates,
                        const std::vector<std::string>& listed)
      : bytes(build(templates, listed)), file(GgufFile::from_memory(bytes, "named")) {}

  static std::vector<std::byte> build(const std::vector<std::pair<std::string, std::string>>& templates,
                                      const std::vector<std::string>& listed) {
    test::GgufBuilder builder;
    for (const auto& [suffix, text] : templates)
      builder.add("tokenizer.chat_template" + suffix, text);
    if (!listed.empty()) builder.add("tokenizer.chat_templates", listed);
    return builder.build();
  }
};

std::string rendered(const ChatTemplate& chat_template, bool with_tools) {
  ChatInput input;
  input.add_message("user", "hello");
  if (with_tools) input.tools = jinja::make_list({jinja::make_text("clock")});
  std::string text;
  for (const PromptPart& part : chat_template.render(input).parts)
    text += part.text;
  return text;
}

ChatTemplate open(const GgufFile& file) {
  return open_chat_template("", read_chat_template(file), *make_byte_tokenizer(512));
}

TEST(ReadChatTemplate, TheOneForToolsIsUsedWhenThereAreTools) {
  const TemplateFile named({{"", "plain"}, {".rag", "documents"}, {".tool_use", "with {{ tools[0] }}"}},
                           {"rag", "tool_use"});
  EXPECT_THAT(chat_template_names(named.file), ElementsAre("default", "rag", "tool_use"));
  const ChatTemplate chat_template = open(named.file);
  EXPECT_EQ(rendered(chat_template, false), "plain");
  EXPECT_EQ(rendered(chat_template, true), "with clock");
}

TEST(ReadChatTemplate, WithoutOneForToolsTheDefaultSeesThem) {
  const TemplateFile single({{"", "{{ tools | length if tools else 'no' }} tools"}}, {});
  EXPECT_THAT(chat_template_names(single.file), ElementsAre("default"));
  EXPECT_EQ(rendered(open(single.file), false), "no tools");
  EXPECT_EQ(rendered(open(single.file), true), "1 tools");
}

TEST(ReadChatTemplate, TheDefaultMayHaveItsNameAlone) {
  const TemplateFile named({{".default", "by name"}}, {"default"});
  EXPECT_THAT(chat_template_names(named.file), ElementsAre("default"));
  EXPECT_EQ(read_chat_template(named.file).text, "by name");
  const TemplateFile both({{"", "first"}, {".default", "by name"}}, {});
  EXPECT_THAT(chat_template_names(both.file), ElementsAre("default"));
  EXPECT_EQ(read_chat_template(both.file).text, "first");
}

TEST(ReadChatTemplate, OneForToolsAloneStandsBesideTheVocabularysOwn) {
  const TemplateFile tools({{".tool_use", "with tools"}}, {});
  EXPECT_THAT(chat_template_names(tools.file), ElementsAre("tool_use"));
  const ChatTemplate chat_template = open(tools.file);
  EXPECT_THAT(rendered(chat_template, false), HasSubstr("<|im_start|>user\nhello"));
  EXPECT_EQ(rendered(chat_template, true), "with tools");
}

TEST(ReadChatTemplate, AFileMayHaveNone) {
  const TemplateFile none({}, {});
  EXPECT_THAT(chat_template_names(none.file), IsEmpty());
  EXPECT_EQ(read_chat_template(none.file).text, "");
}

TEST(ReadChatTemplate, ListedNamesMustHaveTemplates) {
  const TemplateFile named({{"", "plain"}}, {"default", "tool_use"});
  try {
    read_chat_template(named.file);
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("tokenizer.chat_templates: names \"tool_use\", expected a template as "
                          "tokenizer.chat_template.tool_use"));
  }
}

TEST(ReadChatTemplate, RefusesATemplateThatIsNoText) {
  test::GgufBuilder builder;
  builder.add("tokenizer.chat_template.tool_use", uint32_t{1});
  const auto bytes = builder.build();
  const GgufFile file = GgufFile::from_memory(bytes, "number");
  try {
    read_chat_template(file);
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tokenizer.chat_template.tool_use"));
  }
}

}  // namespace
}  // namespace minfer
