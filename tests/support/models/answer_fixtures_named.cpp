// Calls that are a name followed by an object, and calls with a tag around each parameter.
#include "tests/support/models/answer_fixture_families.h"

namespace minfer::test {

std::vector<AnswerFixture> named_fixtures() {
  return {
      {.name = "mistral, list",
       .format = "mistral",
       .text =
           R"([TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "abcdefghi"}, {"name": "g", "arguments": {}}])",
       .calls = {{"f", R"({"a": 1})"}, {"g", "{}"}}},
      {.name = "mistral, named",
       .format = "mistral",
       .text = R"(Yes.[TOOL_CALLS]f[ARGS]{"a": "}"}[TOOL_CALLS]g{"b": 2})",
       .content = "Yes.",
       .calls = {{"f", R"({"a": "}"})"}, {"g", R"({"b": 2})"}}},
      {.name = "mistral, with an id",
       .format = "mistral",
       .text = R"([TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{"a": 1})",
       .calls = {{"f", R"({"a": 1})"}}},
      {.name = "mistral, nested",
       .format = "mistral",
       .text = "[TOOL_CALLS]f[ARGS]" + kNested,
       .calls = {{"f", kNested}}},
      {.name = "mistral, no call",
       .format = "mistral",
       .text = "[TOOL is [TOOL_CALLS] and then nothing",
       .content = "[TOOL is [TOOL_CALLS] and then nothing",
       .has_problem = true},
      {.name = "mistral, reasoning",
       .format = "mistral",
       .text = R"([THINK]Hm.[/THINK]Well [TOOL_CALLS]f{})",
       .content = "Well ",
       .reasoning = "Hm.",
       .calls = {{"f", "{}"}}},
      {.name = "mistral, malformed list",
       .format = "mistral",
       .text = "[TOOL_CALLS][1, 2]",
       .content = "[TOOL_CALLS][1, 2]",
       .has_problem = true},
      {.name = "deepseek v3",
       .format = "deepseek_v3",
       .text = "Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
               "\"`\"}\n```<｜tool▁call▁end｜>\n"
               "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><"
               "｜tool▁calls▁end｜>",
       .content = "Ok.",
       .calls = {{"f", R"({"a": "`"})"}, {"g", "{}"}}},
      {.name = "deepseek v3.1",
       .format = "deepseek_v3",
       .text = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
               "1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}"
               "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       .calls = {{"f", R"({"a": 1})"}, {"g", "{}"}}},
      {.name = "deepseek, the prompt opened the thoughts",
       .format = "deepseek_v3",
       .text = "\nFirst.\n\nThen <think>.</think>\n\nIt is <｜tool▁calls",
       .content = "It is <｜tool▁calls",
       .reasoning = "First.\n\nThen <think>.",
       .begins_in_reasoning = true},
      {.name = "deepseek, a call ends the thoughts",
       .format = "deepseek_v3",
       .text = "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
               "｜tool▁calls▁end｜>",
       .reasoning = "Hm.",
       .calls = {{"f", "{}"}},
       .begins_in_reasoning = true},
      {.name = "deepseek, no call behind the marker",
       .format = "deepseek_v3",
       .text = "<｜tool▁calls▁begin｜>what",
       .content = "<｜tool▁calls▁begin｜>what",
       .has_problem = true},
      {.name = "kimi, two",
       .format = "kimi_k2",
       .text = "Sure.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_"
               "argument_begin|>"
               "{\"city\": "
               "\"Oslo\"}<|tool_call_end|><|tool_call_begin|>functions.f:1<|tool_call_argument_begin|>{}<|"
               "tool_call_end|>"
               "<|tool_calls_section_end|>",
       .content = "Sure.",
       .calls = {{"get_weather", R"({"city": "Oslo"})"}, {"f", "{}"}}},
      {.name = "kimi, no name",
       .format = "kimi_k2",
       .text = "<|tool_calls_section_begin|><|tool_call_begin|><|tool_call_argument_begin|>{}",
       .content = "<|tool_calls_section_begin|><|tool_call_begin|><|tool_call_argument_begin|>{}",
       .has_problem = true},
      {.name = "functiongemma",
       .format = "functiongemma",
       .text = "<start_function_call>call:get_weather{city:<escape>Oslo, "
               "{\"N\"}\n<escape>,days:3,exact:true,at:{lat:59.9,tags:[<escape>a<escape>,"
               "b]}}<end_function_call><start_function_call>call:g{}<end_function_call>",
       .calls =
           {{"get_weather",
             R"({"city": "Oslo, {\"N\"}\n", "days": 3, "exact": true, "at": {"lat": 59.9, "tags": ["a", "b"]}})"},
            {"g", "{}"}}},
      {.name = "functiongemma, malformed",
       .format = "functiongemma",
       .text = "<start_function_call>call f",
       .content = "<start_function_call>call f",
       .has_problem = true},
      {.name = "gemma 4",
       .format = "gemma4",
       .text = "<|channel>thought\nHm.<channel|><|tool_call>call:f{a:<|\"|>x "
               "\"y\"<|\"|>,<|\"|>b<|\"|>:[1,2]}<tool_call|>",
       .reasoning = "Hm.",
       .calls = {{"f", R"({"a": "x \"y\"", "b": [1, 2]})"}}},
  };
}

std::vector<AnswerFixture> tagged_fixtures() {
  return {
      {.name = "qwen3_coder, one",
       .format = "qwen3_coder",
       .text = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</"
               "parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n"
               "</tool_call>",
       .calls = {{"get_weather", R"({"city": "Oslo", "days": 3})"}}},
      {.name = "qwen3_coder, two and text",
       .format = "qwen3_coder",
       .text = "Now:\n\n<tool_call>\n<function=f>\n</function>\n</"
               "tool_call>\n<tool_call>\n<function=g>\n<parameter=a>\n[1, {\"b\": null}]\n"
               "</parameter>\n</function>\n</tool_call> end",
       .content = "Now:\n\n end",
       .calls = {{"f", "{}"}, {"g", R"({"a": [1, {"b": null}]})"}}},
      {.name = "qwen3_coder, text of a program",
       .format = "qwen3_coder",
       .text = "<tool_call>\n<function=write>\n<parameter=text>\n\n  if (a < b) {\n    s = \"</p>\\n\";\t\n  "
               "}\n\n</parameter>\n</function>\n"
               "</tool_call>",
       .calls = {{"write", R"({"text": "\n  if (a < b) {\n    s = \"</p>\\n\";\t\n  }\n"})"}}},
      {.name = "qwen3_coder, no schema",
       .format = "qwen3_coder",
       .text = "<tool_call><function=f><parameter=a>{oops</parameter><parameter=b>\"q\"</"
               "parameter><parameter=c>true</parameter>"
               "<parameter=d>True</parameter><parameter=e></parameter><parameter=f> 1.5 "
               "</parameter></function></tool_call>",
       .calls = {{"f", R"({"a": "{oops", "b": "\"q\"", "c": true, "d": "True", "e": "", "f": 1.5})"}}},
      {.name = "qwen3_coder, schema",
       .format = "qwen3_coder",
       .text = "<tool_call><function=get_weather><parameter=zip>0150</parameter><parameter=city>12</"
               "parameter><parameter=days>3</parameter>"
               "<parameter=exact>True</parameter><parameter=place>{\"lat\": "
               "1}</parameter><parameter=note>null</parameter></function></tool_call>",
       .calls =
           {{"get_weather",
             R"({"zip": "0150", "city": "12", "days": 3, "exact": true, "place": {"lat": 1}, "note": null})"}},
       .tools = kWeatherTools},
      {.name = "qwen3_coder, schema of alternatives",
       .format = "qwen3_coder",
       .text = "<tool_call><function=get_weather><parameter=place>5</parameter><parameter=note>7</"
               "parameter><parameter=days>many</parameter>"
               "</function></tool_call>",
       .calls = {{"get_weather", R"({"place": "5", "note": "7", "days": "many"})"}},
       .tools = kWeatherTools},
      {.name = "qwen3_coder, no tool_call around",
       .format = "qwen3_coder",
       .text = "<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>",
       .calls = {{"f", R"({"a": "x"})"}}},
      {.name = "qwen3_coder, several functions in one",
       .format = "qwen3_coder",
       .text = "<tool_call><function=f></function><function=g></function></tool_call>",
       .calls = {{"f", "{}"}, {"g", "{}"}}},
      {.name = "qwen3_coder, no call",
       .format = "qwen3_coder",
       .text = "<tool_call>\nhm</tool_call>",
       .content = "<tool_call>\nhm</tool_call>",
       .has_problem = true},
      {.name = "qwen3_coder, text between parameters",
       .format = "qwen3_coder",
       .text = "<tool_call><function=f><parameter=a>x</parameter> and <parameter=b>",
       .content = " and <parameter=b>",
       .calls = {{"f", R"({"a": "x")", false}},
       .has_problem = true},
      {.name = "qwen3_coder, cut off behind what is no end",
       .format = "qwen3_coder",
       .text = "<tool_call><function=f><parameter=a>x<</para",
       .content = "</para",
       .calls = {{"f", R"({"a": "x<)", false}},
       .has_problem = true},
      {.name = "qwen3_coder, cut off in a value",
       .format = "qwen3_coder",
       .text = "<think>Hm</think><tool_call><function=f><parameter=a>some text</para",
       .content = "</para",
       .reasoning = "Hm",
       .calls = {{"f", R"({"a": "some text)", false}},
       .has_problem = true},
      {.name = "glm",
       .format = "glm45",
       .text = "\n<think>Hm.</think>\nI "
               "look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</"
               "arg_value>\n<arg_key>days</arg_key>"
               "\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>f\n</tool_call>",
       .content = "I look.\n",
       .reasoning = "Hm.",
       .calls = {{"get_weather", R"({"city": "Oslo", "days": 3})"}, {"f", "{}"}}},
      {.name = "glm, on one line",
       .format = "glm45",
       .text = "<tool_call>f<arg_key>a</arg_key><arg_value>{\"b\": "
               "\"}\"}</arg_value><arg_key>c</arg_key><arg_value>x\ny</arg_value></tool_call>",
       .calls = {{"f", R"({"a": {"b": "}"}, "c": "x\ny"})"}}},
      {.name = "glm, closed twice",
       .format = "glm45",
       .text = "<tool_call>f\n</tool_call></tool_call>",
       .content = "</tool_call>",
       .calls = {{"f", "{}"}}},
      {.name = "glm, no call",
       .format = "glm45",
       .text = "<tool_call> is a tag\nof mine",
       .content = "<tool_call> is a tag\nof mine",
       .has_problem = true},
      {.name = "seed_oss",
       .format = "seed_oss",
       .text = "<seed:think>\nHm</seed:think>\n<seed:tool_call>\n<function=f>\n<parameter=a>1</"
               "parameter>\n<parameter=b>two\nlines</parameter>\n"
               "</function>\n</seed:tool_call>",
       .reasoning = "Hm",
       .calls = {{"f", R"({"a": 1, "b": "two\nlines"})"}}},
      {.name = "minimax",
       .format = "minimax_m2",
       .text = "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">[1]</parameter>\n<parameter "
               "name=\"b\">x</parameter>\n</invoke>\n"
               "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
       .calls = {{"f", R"({"a": [1], "b": "x"})"}, {"g", "{}"}}},
      {.name = "minimax, name that is none",
       .format = "minimax_m2",
       .text = "<minimax:tool_call><invoke name=\"f g\">",
       .content = "<minimax:tool_call><invoke name=\"f g\">",
       .has_problem = true},
  };
}

}  // namespace minfer::test
