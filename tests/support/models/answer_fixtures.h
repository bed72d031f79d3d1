#pragma once

#include <string>
#include <utility>
#include <vector>

namespace minfer::test {

/// An answer as a model of some format writes it, and its content.
struct AnswerFixture {
  struct Call {
    std::string name;
    std::string arguments;  ///< byte for byte
    bool is_whole = true;
  };
  std::string name;
  std::string format;
  std::string text;
  std::string content = {};
  std::string reasoning = {};
  std::vector<Call> calls = {};
  bool has_problem = false;
  bool begins_in_reasoning = false;
  bool finds_calls = true;
  bool finds_reasoning = true;
  std::string tools = {};  ///< of the request, as JSON
};

const std::vector<AnswerFixture>& answer_fixtures();

}  // namespace minfer::test
