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
  explicit TagParser(const ChatAnswerOptions& options) : options_(options) {
    if (options.begins_in_reasoning) kind_ = ChatDelta::Kind::reasoning;
  }

  void push(std::string_view text, std::vector<ChatDelta>& deltas) override {
    for (const char c : text) {
      if (tag_.empty() && c != '<') {
        emit(std::string(1, c), deltas);
        continue;
      }
      tag_ += c;
      if (c == '>') take(std::exchange(tag_, {}), deltas);
    }
  }
  void finish(std::vector<ChatDelta>& deltas) override {
    if (!tag_.empty()) emit(std::exchange(tag_, {}), deltas);
    if (kind_ == ChatDelta::Kind::call_arguments) problem_ = "a call is cut off";
  }

 private:
  void take(const std::string& tag, std::vector<ChatDelta>& deltas) {
    if (options_.finds_reasoning && tag == "<r>") {
      kind_ = ChatDelta::Kind::reasoning;
    } else if (options_.finds_reasoning && tag == "</r>") {
      kind_ = ChatDelta::Kind::content;
    } else if (options_.finds_calls && tag.starts_with("<c:")) {
      deltas.push_back(
          {.kind = ChatDelta::Kind::call_begin, .text = tag.substr(3, tag.size() - 4), .call = num_calls_++});
      kind_ = ChatDelta::Kind::call_arguments;
    } else if (options_.finds_calls && tag == "</c>") {
      deltas.push_back({.kind = ChatDelta::Kind::call_end, .text = {}, .call = num_calls_ - 1});
      kind_ = ChatDelta::Kind::content;
    } else {
      emit(tag, deltas);
    }
  }
  void emit(const std::string& text, std::vector<ChatDelta>& deltas) {
    if (!deltas.empty() && deltas.back().kind == kind_) {
      deltas.back().text += text;
    } else {
      deltas.push_back({.kind = kind_,
                        .text = text,
                        .call = kind_ == ChatDelta::Kind::call_arguments ? num_calls_ - 1 : -1});
    }
  }

  const ChatAnswerOptions options_;
  ChatDelta::Kind kind_ = ChatDelta::Kind::content;
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
