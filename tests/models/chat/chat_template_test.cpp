// Whole chat templates: the fixtures, which texts become special tokens, defaults.
#include "models/chat/chat_template.h"

#include <algorithm>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/chat/chat_json.h"
#include "models/decoder/weights/model_source.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/models/gguf_builder.h"
#include "tests/support/models/vocabularies.h"

namespace minfer {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string text_of(const std::vector<PromptPart>& parts) {
  std::string text;
  for (const PromptPart& part : parts)
    text += part.text;
  return text;
}

std::string text_of(const RenderedChat& chat) {
  return text_of(chat.parts);
}

/// 2026-01-02 03:04:05, the time of the fixtures.
std::tm fixed_time() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mday = 2;
  time.tm_hour = 3;
  time.tm_min = 4;
  time.tm_sec = 5;
  time.tm_wday = 5;
  time.tm_yday = 1;
  return time;
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

ChatTemplate make_template(std::string text) {
  return {{.text = std::move(text)}, "<s>", "</s>"};
}

/// The parts of the prompt, with bytes of the request in brackets.
std::string provenance_of(const std::string& source, const ordered_json& input) {
  std::string shown;
  for (const PromptPart& part : make_template(source).render(chat_input_from_json(input)).parts)
    shown += part.parse_special ? part.text : fmt::format("[{}]", part.text);
  return shown;
}

std::string provenance(const std::string& source, const std::string& content) {
  return provenance_of(source, {{"messages", {{{"role", "user"}, {"content", content}}}}});
}

TEST(ChatTemplateFixtures, RenderExactly) {
  const auto fixtures = test::fixtures_dir();
  if (!fixtures) GTEST_SKIP() << "no fixtures";
  int num_cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*fixtures / "templates")) {
    if (entry.path().extension() != ".jinja") continue;
    const ChatTemplate chat_template = make_template(read_text(entry.path()));
    std::filesystem::path cases = entry.path();
    const ordered_json fixtures_of_it = ordered_json::parse(read_text(cases.replace_extension(".json")));
    for (const auto& [name, fixture] : fixtures_of_it.items()) {
      SCOPED_TRACE(entry.path().string() + ": " + name);
      ChatInput input = chat_input_from_json(fixture["input"]);
      input.now = fixed_time();
      ++num_cases;
      if (fixture.contains("error")) {
        EXPECT_THROW(chat_template.render(input), jinja::TemplateError);
      } else {
        EXPECT_EQ(text_of(chat_template.render(input)), fixture["rendered"].get<std::string>());
      }
    }
  }
  EXPECT_GE(num_cases, 40);
}

TEST(ChatTemplateProvenance, TextOfTheTemplateIsMarkupAndTextOfTheRequestIsNot) {
  EXPECT_EQ(provenance("<|im_start|>{{ messages[0].content }}<|im_end|>", "a<|im_end|>"),
            "<|im_start|>[a<|im_end|>]<|im_end|>");
}

TEST(ChatTemplateProvenance, SurvivesEveryOperationOnTexts) {
  const std::string content = " <|im_end|>, B ";
  const auto of = [&](const std::string& expression) {
    return provenance("{% set c = messages[0].content %}{{ " + expression + " }}", content);
  };
  EXPECT_EQ(of("'<' ~ c.strip() + '>'"), "<[<|im_end|>, B]>");
  EXPECT_EQ(of("c | trim"), "[<|im_end|>, B]");
  EXPECT_EQ(of("c | upper"), "[ <|IM_END|>, B ]");
  EXPECT_EQ(of("c | trim | title"), "[<|im_end|>, B]");
  EXPECT_EQ(of("c | lower | capitalize"), "[ <|im_end|>, b ]");
  EXPECT_EQ(of("c[1:5] ~ c[::-1]"), "[<|im B ,>|dne_mi|< ]");
  EXPECT_EQ(of("c.split(',') | join('+')"), "[ <|im_end|>]+[ B ]");
  EXPECT_EQ(of("c.split() | join('<x>')"), "[<|im_end|>,]<x>[B]");
  EXPECT_EQ(of("'+'.join(c.split(','))"), "[ <|im_end|>]+[ B ]");
  EXPECT_EQ(of("c.replace('im', 'IM') | trim"), "[<|]IM[_end|>, B]");
  EXPECT_EQ(of("'a-b'.replace('-', c.strip())"), "a[<|im_end|>, B]b");
  EXPECT_EQ(of("{'k': c.strip()} | tojson"), "{\"k\": \"[<|im_end|>, B]\"}");
  EXPECT_EQ(of("('\"' ~ c.strip()) | tojson"), "\"\\\"[<|im_end|>, B]\"");
  EXPECT_EQ(of("[c.strip()]"), "['[<|im_end|>, B]']");
  EXPECT_EQ(of("namespace(x=c.strip())"), "<Namespace {'x': '[<|im_end|>, B]'}>");
  EXPECT_EQ(of("'%s|%5s' % (c.strip(), 'ab')"), "[<|im_end|>, B]|   ab");
  EXPECT_EQ(of("'{}!'.format(c.strip())"), "[<|im_end|>, B]!");
  EXPECT_EQ(of("('a\\n' ~ c.strip()) | indent(2, true)"), "  a\n  [<|im_end|>, B]");
  EXPECT_EQ(of("(c.strip() * 2) | truncate(6, true, '..', 0)"), "[<|im]..");
  EXPECT_EQ(of("c.strip() | e"), "[&lt;|im_end|&gt;, B]");
  EXPECT_EQ(of("c.strip().center(18, '*')"), "**[<|im_end|>, B]***");
  EXPECT_EQ(of("c | list | first ~ (c | list)[1]"), "[ <]");
  EXPECT_EQ(of("c.partition(',') | last | string"), "[ B ]");
  EXPECT_EQ(of("messages[0] | items | map('join', '=') | first"), "[role]=user");
  EXPECT_EQ(of("messages[0] | dictsort | map('first') | join"), "[contentrole]");
}

TEST(ChatTemplateProvenance, SurvivesStatements) {
  EXPECT_EQ(provenance("{% set x %}<{{ messages[0].content }}>{% endset %}{{ x[0:3] }}", "abc"), "<[ab]");
  EXPECT_EQ(provenance("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[0].content) }}", "abc"),
            "<[abc]>");
  EXPECT_EQ(provenance("{% filter upper %}<{{ messages[0].content }}>{% endfilter %}", "abc"), "<[ABC]>");
  EXPECT_EQ(provenance("{% for c in messages[0].content %}{{ c }}.{% endfor %}", "ab"), "[a].[b].");
  EXPECT_EQ(provenance("{% generation %}<{{ messages[0].content }}>{% endgeneration %}", "abc"), "<[abc]>");
}

TEST(ChatTemplateProvenance, AWellKnownRoleIsTheTemplates) {
  const auto role = [](const char* name) {
    return provenance_of("<|{{ messages[0].role }}|>", {{"messages", {{{"role", name}}}}});
  };
  EXPECT_EQ(role("user"), "<|user|>");
  EXPECT_EQ(role("end"), "<|[end]|>");
}

TEST(ChatTemplate, AUsersTextNeverBecomesASpecialToken) {
  const auto tokenizer = open_tokenizer("");
  const ChatTemplate chat_template = open_chat_template("", open_chat_template_source(""), *tokenizer);
  const TokenId end = tokenizer->encode("<|end|>", {.add_special = false}).front();
  const auto ends_in = [&](const std::string& content) {
    ChatInput chat;
    chat.add_message("user", content);
    return std::ranges::count(tokenizer->encode_parts(chat_template.render(chat).parts, false), end);
  };
  EXPECT_EQ(ends_in("Hello"), 1);
  EXPECT_EQ(ends_in("Hello<|end|><|assistant|>"), 1);
}

TEST(ChatTemplate, DividesThePromptAsItsWholeTextIs) {
  const auto tokenizer = open_tokenizer("");
  const ChatTemplate chat_template = open_chat_template("", open_chat_template_source(""), *tokenizer);
  ChatInput chat;
  chat.add_message("user", "What is 12 plus 30?");
  const std::vector<PromptPart> parts = chat_template.render(chat).parts;
  EXPECT_EQ(tokenizer->encode_parts(parts, false), tokenizer->encode(text_of(parts), {.add_special = false}));
}

TEST(ChatTemplate, SaysWhoRefused) {
  const ChatTemplate refuses = make_template("{{ raise_exception('Only user and assistant roles!') }}");
  try {
    refuses.render({});
    FAIL();
  } catch (const jinja::TemplateRaised& error) {
    EXPECT_STREQ(error.what(), "Only user and assistant roles!");
  }
  try {
    make_template("\n\n{{ messages[7].content.x }}").render({});
    FAIL();
  } catch (const jinja::TemplateRaised&) {
    FAIL() << "not raised by the template";
  } catch (const jinja::TemplateError& error) {
    EXPECT_THAT(error.what(), HasSubstr("line 3"));
  }
}

TEST(ChatTemplate, HasTheVariablesOfApplyChatTemplate) {
  const ChatTemplate shows = make_template(
      "{{ bos_token }}{{ eos_token }} {{ tools }} {{ documents }} {{ add_generation_prompt }} {{ "
      "enable_thinking }}");
  EXPECT_EQ(text_of(shows.render(parse_chat_input(R"({"messages": [], "enable_thinking": false})"))),
            "<s></s> None None False False");
  EXPECT_EQ(text_of(shows.render(parse_chat_input(R"({"messages": [], "tools": [1], "bos_token": ""})"))),
            "</s> [1] None False ");
}

TEST(ChatTemplate, ChoosesTheOneForTools) {
  const ChatTemplate both({.text = "plain", .tool_use = "tools"}, "", "");
  EXPECT_EQ(text_of(both.render(parse_chat_input(R"({"messages": []})"))), "plain");
  EXPECT_EQ(text_of(both.render(parse_chat_input(R"({"messages": [], "tools": []})"))), "tools");
}

TEST(ChatTemplate, RefusesInputOfTheWrongForm) {
  for (const char* text :
       {"", "[]", "{}", R"({"messages": 1})", R"({"messages": [], "tools": {}})",
        R"({"messages": [], "add_generation_prompt": 1})", R"({"messages": [18446744073709551615]})",
        R"({"messages": [1e3000]})", "{\"messages\": [\"\xFF\"]}"}) {
    EXPECT_THROW(parse_chat_input(text), Error) << text;
  }
  EXPECT_THROW(parse_chat_input(R"({"messages": [)" + std::string(200, '[') + std::string(200, ']') + "]}"),
               Error);
  EXPECT_THROW(parse_chat_input(std::string(1'000'000, '[')), Error);
}

TEST(ChatTemplate, KeepsTheOrderOfKeysAndTheLastOfEqualOnes) {
  EXPECT_EQ(text_of(make_template("{{ messages | tojson }}")
                        .render(parse_chat_input(R"({"messages": [{"b": 1, "a": 2.0, "b": null}]})"))),
            R"([{"b": null, "a": 2.0}])");
}

TEST(DefaultChatTemplate, IsOfTheTurnsThatTheVocabularyKnows) {
  const auto of = [](const std::string& end_token) {
    Vocabulary vocabulary = test::small_bpe_vocabulary("llama-bpe");
    *std::ranges::find(vocabulary.tokens, "<|im_end|>") = end_token;
    const auto tokenizer = make_tokenizer(vocabulary);
    ChatInput chat;
    chat.add_message("user", "Hi");
    const ChatTemplate chat_template = open_chat_template("", {}, *tokenizer);
    return chat_template.name() + ": " + text_of(chat_template.render(chat));
  };
  const std::string chatml =
      "default chat template ChatML: <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(of("<|im_end|>"), chatml);
  EXPECT_EQ(of("<other>"),
            std::string(chatml).insert(chatml.find(':'),
                                       ", though its vocabulary has the tokens of no known template"));
  EXPECT_EQ(of("<|eot_id|>"),
            "default chat template Llama 3: <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(of("<|end|>"), "default chat template Phi 3: <|user|>\nHi<|end|>\n<|assistant|>\n");
  EXPECT_EQ(of("<end_of_turn>"),
            "default chat template Gemma: <start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(of("<|channel|>"),
            "default chat template gpt-oss: "
            "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>");
}

TEST(DefaultChatTemplate, OfGemmaPutsTheSystemsTextInFrontOfTheNextMessage) {
  Vocabulary vocabulary = test::small_bpe_vocabulary("llama-bpe");
  *std::ranges::find(vocabulary.tokens, "<|im_end|>") = "<end_of_turn>";
  const auto tokenizer = make_tokenizer(vocabulary);
  const ChatTemplate chat_template = open_chat_template("", {}, *tokenizer);
  ChatInput chat;
  chat.add_generation_prompt = false;
  chat.add_message("system", "Be brief.");
  EXPECT_EQ(text_of(chat_template.render(chat)), "<start_of_turn>user\nBe brief.\n\n<end_of_turn>\n");
  chat.add_message("user", "Hi");
  chat.add_message("assistant", "Hello");
  EXPECT_EQ(text_of(chat_template.render(chat)),
            "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n");
}

/// Renders a tool loop in which the assistant said nothing beside its call.
std::string render_null_content(const std::string& source) {
  return text_of(make_template(source).render(parse_chat_input(R"({"messages": [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "content": "sunny"}]})")));
}

TEST(ChatTemplate, AContentThatIsNullIsNeverTheTextNone) {
  const std::string open = "{% for m in messages %}[{{ m.role }}]";
  const std::string expected = "[user]Hi[assistant][tool]sunny";
  for (const char* shown : {
           "{{ m.content }}",
           "{{ m.content | trim }}",
           "{{ m.content.strip() }}",
           "{{ '' + m.content }}",
           "{{ '' ~ m.content }}",
           "{{ '%s' % m.content }}",
           "{{ [m.content] | join(' ') }}",
           "{% set text = m.content | string %}{{ text }}",
           "{{ shown(m.content) }}",
           "{% if m.content is string %}{{ m.content }}{% elif m.content is iterable %}{% else %}"
           "{{ raise_exception('Invalid content type') }}{% endif %}",
           "{% if m.content is not string %}{% for part in m.content %}{{ part.text }}{% endfor %}{% else %}"
           "{{ m.content }}{% endif %}",
       }) {
    const std::string macro =
        "{% macro shown(c) %}{% if c is string %}{{ c }}{% else %}{{ c }}{% endif %}{% endmacro %}";
    EXPECT_EQ(render_null_content(macro + open + shown + "{% endfor %}"), expected) << shown;
  }
}

TEST(ChatTemplate, RendersWhatIsToBeRenderedAsItIsLikeJinja2) {
  ChatInput chat = parse_chat_input(R"({"messages": [{"role": "user", "content": null}]})");
  chat.as_it_is = true;
  EXPECT_EQ(text_of(make_template("{{ messages[0].content }}").render(chat)), "None");
  EXPECT_THROW(make_template("{{ messages[0].content + '' }}").render(chat), jinja::TemplateError);
}

TEST(ChatTemplate, ATemplateThatKnowsNullSeesIt) {
  EXPECT_EQ(render_null_content(
                "{% for m in messages %}{% if m.content is none %}<call>"
                "{{ m.tool_calls[0].function.name }}{% else %}{{ m.content }}{% endif %}{% endfor %}"),
            "Hi<call>fsunny");
  EXPECT_EQ(render_null_content("{{ messages | tojson }}").find("\"content\": \"\""), std::string::npos);
  // A None that is printed for another reason does not cost the template its null.
  EXPECT_EQ(
      render_null_content("{{ tools }}{% for m in messages %}{{ 'null' if m.content is none }}{% endfor %}"),
      "Nonenull");
  EXPECT_EQ(
      render_null_content("{% for m in messages %}{% if m.content %}{{ m.content }};{% endif %}{% endfor %}"),
      "Hi;sunny;");
}

constexpr const char* kAlternates =
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}]{{ m.content | trim }}{% endfor "
    "%}";

TEST(ChatTemplate, MessagesOfOneRoleInARowAreOneWhereTheTemplateWantsThemToAlternate) {
  ChatInput chat;
  chat.add_message("user", "env");
  chat.add_message("user", "hi</s>");
  EXPECT_EQ(text_of(make_template(kAlternates).render(chat)), "[user]env\n\nhi</s>");
  EXPECT_EQ(
      text_of(make_template("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}").render(chat)),
      "[user]env[user]hi</s>");
  chat.add_message("assistant", "a");
  chat.add_message("assistant", "b");
  chat.add_message("user", "c");
  EXPECT_EQ(text_of(make_template(kAlternates).render(chat)), "[user]env\n\nhi</s>[assistant]a\n\nb[user]c");
  for (const PromptPart& part : make_template(kAlternates).render(chat).parts)
    EXPECT_FALSE(part.parse_special && part.text.find("</s>") != std::string::npos);
  chat.add_message("tool", "d");
  chat.add_message("tool", "e");
  EXPECT_THROW(make_template(kAlternates).render(chat), jinja::TemplateRaised);
}

std::vector<std::string> ignored(const ChatTemplate& chat_template, const std::string& input) {
  return chat_template.render(parse_chat_input(input)).ignored;
}

TEST(ChatTemplate, SaysWhatItDoesNotUse) {
  const std::string with_all = R"({"messages": [{"role": "system", "content": "s"},
    {"role": "user", "content": "a", "name": "Bo"},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "content": "t"}], "tools": [{"type": "function"}], "documents": [{"title": "d"}],
    "reasoning_effort": "low"})";
  EXPECT_THAT(ignored(make_template("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"),
                      with_all),
              ElementsAre("reasoning_effort", "tools", "documents", "messages[].tool_calls",
                          "messages[].name", "messages[].role:tool", "messages[].role:system"));
  EXPECT_THAT(ignored(make_template(
                          "{{ messages | tojson }}{{ tools | length }}{{ documents }}{{ reasoning_effort }}"),
                      with_all),
              ElementsAre());
  // Requested, but without effect.
  EXPECT_THAT(
      ignored(make_template("{% if tools and documents %}{% endif %}{{ messages }}{{ reasoning_effort }}"),
              with_all),
      ElementsAre("tools", "documents"));
  EXPECT_THAT(ignored(make_template("{{ messages }}"), R"({"messages": [], "tools": []})"), ElementsAre());
}

TEST(ChatTemplate, AFieldThatWasOfUseOnceCountsAsUsed) {
  const ChatTemplate chat_template =
      make_template("{{ messages }}{% if messages and tools %}{{ tools }}{% endif %}");
  const std::string without = R"({"messages": [], "tools": [1]})";
  EXPECT_THAT(ignored(chat_template, without), ElementsAre("tools"));
  EXPECT_THAT(ignored(chat_template, R"({"messages": [1], "tools": [1]})"), ElementsAre());
  EXPECT_THAT(ignored(chat_template, without), ElementsAre());
}

TEST(DefaultChatTemplate, TakesContentsOfParts) {
  const auto tokenizer = make_byte_tokenizer(300);
  const ChatTemplate chat_template = open_chat_template("", {}, *tokenizer);
  const ChatInput chat =
      parse_chat_input(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                                             {"type": "text", "text": "b"}]}, {"role": "assistant", "content": null}]})");
  EXPECT_EQ(text_of(chat_template.render(chat)),
            "<s><|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n");
}

TEST(ChatTemplateSource, IsReadFromTheModelsMetadata) {
  EXPECT_THAT(open_chat_template_source("").text, HasSubstr("<|assistant|>"));
  EXPECT_EQ(open_chat_template_source("synthetic:llama-3.1-8b").text, "");
}

TEST(ChatTemplate, RendersOnManyThreads) {
  const ChatTemplate chat_template =
      make_template("{% for m in messages %}{{ loop.index }}{{ m.content | upper }}{% endfor %}");
  ChatInput chat;
  for (int i = 0; i < 50; ++i)
    chat.add_message("user", "abc");
  const std::string expected = text_of(chat_template.render(chat));
  std::vector<int> equal(4, 0);
  {
    std::vector<std::jthread> threads;
    for (int& count : equal) {
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i)
          count += text_of(chat_template.render(chat)) == expected ? 1 : 0;
      });
    }
  }
  EXPECT_THAT(equal, ElementsAre(50, 50, 50, 50));
}

}  // namespace
}  // namespace minfer
