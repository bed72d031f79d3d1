#pragma once

#include "tests/support/models/answer_fixtures.h"

namespace minfer::test {

// The parts of answer_fixtures(), by the way in which calls are written.
std::vector<AnswerFixture> json_fixtures();
std::vector<AnswerFixture> named_fixtures();
std::vector<AnswerFixture> tagged_fixtures();

inline const std::string kWeatherTools =
    R"([{"type": "function", "function": {"name": "get_weather", "parameters": {
  "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "zip": {"type": "string"},
  "exact": {"type": "boolean"}, "place": {"anyOf": [{"type": "object"}, {"type": "string"}]},
  "note": {"type": ["string", "null"]}}}}}])";

/// Braces, quotes, escapes and characters beyond ASCII within strings; objects within objects.
inline const std::string kNested =
    R"({"query": "a \"b\" {c} [d] \\ \n \u00e9 \ud83d\ude00 </tool_call> é 日本", "filter": {"tags": ["x", {"y": []}], "n": -1.5e3}, "all": true, "none": null})";

}  // namespace minfer::test
