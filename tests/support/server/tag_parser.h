#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/chat/answer/chat_answer_parser.h"
#include "server/api/request/api_context.h"

namespace minfer::test {

/// A format of answers for tests: "<r>thoughts</r>", "<c:NAME>arguments</c>"; everything else is content. An answer that ends within
/// a call is a problem.
class TagParser final : public ChatAnswerParser {
 public:
  explicit TagParser(const ChatAnswerOptions& options)
      : options_(options), in_reasoning_(options.begins_in_reasoning) {}

 private:
  void take(char c) override {
    if (tag_.empty() && c != '<') return emit({&c, 1});
    tag_ += c;
    if (c == '>') take_tag(std::exchange(tag_, {}));
  }
  void end() override {
    if (!tag_.empty()) emit(std::exchange(tag_, {}));
    if (out_.in_call()) note_problem("a call is cut off");
  }

  void take_tag(const std::string& tag) {
    if (options_.finds_reasoning && (tag == "<r>" || tag == "</r>")) {
      in_reasoning_ = tag == "<r>";
    } else if (options_.finds_calls && tag.starts_with("<c:")) {
      out_.begin_call(tag.substr(3, tag.size() - 4));
    } else if (options_.finds_calls && tag == "</c>" && out_.in_call()) {
      out_.end_call();
      in_reasoning_ = false;
    } else {
      emit(tag);
    }
  }
  void emit(std::string_view text) {
    if (out_.in_call()) return out_.arguments(text);
    in_reasoning_ ? out_.reasoning(text) : out_.content(text);
  }

  const ChatAnswerOptions options_;
  bool in_reasoning_;
  std::string tag_;
};

/// Makes an API read answers with TagParser.
inline void parse_tags(ApiContext& context) {
  context.make_answer_parser = [](const ChatAnswerOptions& options) {
    return std::make_unique<TagParser>(options);
  };
  context.finds_calls = true;
  context.finds_reasoning = true;
}

}  // namespace minfer::test
