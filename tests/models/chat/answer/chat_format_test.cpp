// The format that a template asks for, and how formats are named and combined.
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/chat/answer/chat_answer_parser.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/models/parsed_answer.h"

namespace minfer {
namespace {

std::string detected(std::string_view chat_template) {
  const ChatFormat* format = detect_chat_format(chat_template);
  return format == nullptr ? "none" : std::string(name(*format));
}

TEST(ChatFormatDetection, ByWhatTemplatesSay) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ '<tool_call>\\n{\"name\": ' }}", "hermes"},
      {"{{ '<tool_call>\\n<function=' ~ name ~ '>' }}{{ '<parameter=' }}", "qwen3_coder"},
      {"<tool_call>{function-name}\\n<arg_key>{arg-key-1}</arg_key>", "glm45"},
      {"<tool_call>{\"name\"} <think></think>", "hermes"},
      {"<|start|>assistant<|channel|>analysis<|message|>", "gpt_oss"},
      {"'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name </think>", "deepseek_v3"},
      {"<|im_system|>tool_declare<|im_middle|>", "kimi_k2"},
      {"<|tool_calls_section_begin|>", "kimi_k2"},
      {"[TOOL_CALLS]", "mistral"},
      {"<|tool_call|>", "granite"},
      {"<|tool|> <|tool_call|>{\"name\": \"foo\"}<|/tool_call|>", "phi4_mini"},
      {"<start_function_call>call:", "functiongemma"},
      {"<|channel>thought <|tool_call>call:", "gemma4"},
      {"'<seed:tool_call>' <function= <parameter=", "seed_oss"},
      {"<minimax:tool_call> <invoke name= <parameter name=", "minimax_m2"},
      {"<|tool_call_start|>[", "lfm2"},
      {"<function_calls>", "olmo3"},
      {"<TOOLCALL>[", "nemotron"},
      {"<tool_calls>[", "jamba"},
      {"<|python_start|>[", "pythonic"},
      {"\"<|python_tag|>\" + name", "llama3_json"},
      {"Respond in the format {\"name\": function name, \"parameters\": dictionary of argument name and its "
       "value}.",
       "llama3_json"},
      {"```tool_code", "gemma3"},
      {"content.split('</think>')", "think"},
      {"◁think▷", "kimi_vl"},
      {"<|im_start|>{{ role }}", "none"},
      {"", "none"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_EQ(detected(text), expected) << text;
}

TEST(ChatFormatDetection, OfRealTemplates) {
  const auto fixtures = test::fixtures_dir();
  if (!fixtures) GTEST_SKIP() << "no fixtures";
  // The templates of Phi 3.5 and Gemma 2 have no tools; SmolLM3's here is an edition without them.
  const std::map<std::string, std::string> expected = {
      {"HuggingFaceTB-SmolLM3-3B", "think"},
      {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
      {"Qwen-Qwen3-0.6B", "hermes"},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3"},
      {"google-gemma-2-2b-it", "none"},
      {"ibm-granite-granite-3.3-2B-Instruct", "granite"},
      {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json"},
      {"meta-llama-Llama-3.2-3B-Instruct", "llama3_json"},
      {"microsoft-Phi-3.5-mini-instruct", "none"},
      {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
  };
  std::map<std::string, std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(*fixtures / "templates")) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (expected.contains(entry.path().stem())) found[entry.path().stem()] = detected(text);
  }
  EXPECT_EQ(found, expected);
}

TEST(ChatFormatDetection, ReasoningByItself) {
  EXPECT_EQ(name(*detect_reasoning_format("<|python_tag|> ... </think>")), "think");
  EXPECT_EQ(name(*detect_reasoning_format("[TOOL_CALLS] [THINK]")), "mistral");
  EXPECT_EQ(detect_reasoning_format("[TOOL_CALLS]"), nullptr);
}

TEST(ChatFormats, AreFoundByNameAndByVllmsNames) {
  for (const std::string& each : chat_format_names()) {
    ASSERT_NE(find_chat_format(each), nullptr) << each;
    EXPECT_EQ(name(*find_chat_format(each)), each);
  }
  const std::pair<const char*, const char*> aliases[] = {{"qwen3", "hermes"},
                                                         {"qwen3_xml", "qwen3_coder"},
                                                         {"deepseek_r1", "deepseek_v3"},
                                                         {"openai_gptoss", "gpt_oss"},
                                                         {"openai", "gpt_oss"},
                                                         {"llama4_pythonic", "pythonic"},
                                                         {"phi4_mini_json", "phi4_mini"},
                                                         {"glm4", "glm45"}};
  for (const auto& [alias, format] : aliases) {
    ASSERT_NE(find_chat_format(alias), nullptr) << alias;
    EXPECT_EQ(name(*find_chat_format(alias)), format);
  }
  EXPECT_EQ(find_chat_format("nothing"), nullptr);
  EXPECT_EQ(find_chat_format(""), nullptr);
  EXPECT_TRUE(has_calls(*find_chat_format("hermes")));
  EXPECT_TRUE(has_calls(*find_chat_format("gpt_oss")));
  EXPECT_FALSE(has_calls(*find_chat_format("think")));
}

TEST(ChatFormats, SayWhetherAPromptOpensThoughts) {
  const ChatFormat& hermes = *find_chat_format("hermes");
  EXPECT_TRUE(ends_in_reasoning(hermes, "<|im_start|>assistant\n<think>\n"));
  EXPECT_TRUE(ends_in_reasoning(hermes, "<think>"));
  EXPECT_FALSE(ends_in_reasoning(hermes, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_in_reasoning(hermes, ""));
  EXPECT_TRUE(
      ends_in_reasoning(*find_chat_format("gpt_oss"), "<|start|>assistant<|channel|>analysis<|message|>"));
  EXPECT_FALSE(ends_in_reasoning(*find_chat_format("llama3_json"), "<think>"));
}

TEST(ChatFormats, HaveMarkers) {
  EXPECT_THAT(markers(*find_chat_format("mistral")),
              testing::ElementsAre("[TOOL_CALLS]", "[THINK]", "[/THINK]", "<think>", "</think>"));
  EXPECT_THAT(markers(*find_chat_format("llama3_json")), testing::ElementsAre("<|python_tag|>"));
  EXPECT_THAT(markers(*find_chat_format("gpt_oss")), testing::Contains("<|channel|>"));
}

TEST(ChatFormats, CallsOfOneAndReasoningOfAnother) {
  const std::string text = "<seed:think>A</seed:think>[TOOL_CALLS]f{}";
  const auto parser = make_chat_answer_parser(find_chat_format("mistral"), find_chat_format("seed_oss"),
                                              {.finds_calls = true, .finds_reasoning = true});
  const test::ParsedAnswer answer = test::parse_answer(*parser, {text});
  EXPECT_EQ(answer.reasoning, "A");
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].name, "f");

  const auto without = make_chat_answer_parser(find_chat_format("mistral"), nullptr,
                                               {.finds_calls = true, .finds_reasoning = true});
  EXPECT_EQ(test::parse_answer(*without, {text}).content, "<seed:think>A</seed:think>");
}

TEST(ChatFormats, AnAnswerThatGoesOnInsideThoughtsThinksUntilTheyEnd) {
  const auto go_on = [](const char* name, std::string_view begun, std::string_view answer) {
    const ChatFormat* format = find_chat_format(name);
    std::vector<ChatDelta> deltas;
    const auto parser = make_chat_answer_parser(
        format, {.finds_reasoning = true, .open_thoughts = find_open_thoughts(*format, begun)});
    parser->push(answer, deltas);
    parser->finish(deltas);
    std::string shown;
    for (const ChatDelta& delta : deltas)
      shown += (delta.kind == ChatDelta::Kind::reasoning ? "R:" : "C:") + delta.text + ";";
    return shown;
  };
  EXPECT_EQ(go_on("hermes", "<think>I add", "\n2 and 2.</think>4"), "R:\n2 and 2.;C:4;");
  EXPECT_EQ(go_on("hermes", "<think>I add", " 2 and 2."), "R: 2 and 2.;");
  EXPECT_EQ(go_on("hermes", "<think>I add.</think>", "4"), "C:4;");
  EXPECT_EQ(go_on("mistral", "<think>I add", "[/THINK] 2.</think>4"), "R:[/THINK] 2.;C:4;");
  EXPECT_EQ(go_on("granite", "Here is my thought process: I", " add.Here is my response:4"), "R: add.;C:4;");
  EXPECT_EQ(go_on("gpt_oss", "<|channel|>analysis<|message|>I",
                  " add.<|end|><|start|>assistant<|channel|>final<|message|>4"),
            "R: add.;C:4;");
}

TEST(ChatFormats, NoneLeavesAllAsContent) {
  const auto parser = make_chat_answer_parser(nullptr, {.finds_calls = true, .finds_reasoning = true});
  EXPECT_EQ(test::parse_answer(*parser, {"<think>a</think>", " {\"name\""}).content,
            "<think>a</think> {\"name\"");
}

}  // namespace
}  // namespace minfer
