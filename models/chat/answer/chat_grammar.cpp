#include "models/chat/answer/chat_grammar.h"

#include <array>

#include "kernels/base/error.h"
#include "models/chat/answer/call_grammar.h"

namespace minfer {
namespace {

using answers::text_without;
using Calls = ChatGrammarOptions::Calls;
using Expr = GrammarBuilder::Expr;

class ChatGrammar {
 public:
  ChatGrammar(GrammarBuilder& builder, const std::vector<ToolFunction>& tools,
              const ChatGrammarOptions& options)
      : builder_(builder), tools_(tools), options_(options) {}

  Expr make() {
    const bool is_harmony = (options_.call_format != nullptr && options_.call_format->is_harmony) ||
                            (options_.reasoning_format != nullptr && options_.reasoning_format->is_harmony);
    return is_harmony ? harmony() : builder_.sequence({thoughts(), body()});
  }

 private:
  /// Line ends between thoughts and what follows.
  Expr gap() { return builder_.repeat(builder_.literal("\n"), 0, 2); }

  Expr thoughts() {
    if (options_.reasoning_format == nullptr || options_.reasoning_format->reasoning.empty())
      return builder_.empty();
    const ReasoningMarkers& markers = options_.reasoning_format->reasoning.front();
    const Expr rest =
        builder_.sequence({text_without(builder_, std::array{markers.close}), marker(markers.close), gap()});
    if (options_.begins_in_reasoning) return rest;
    return builder_.optional(builder_.sequence({marker(markers.open), rest}));
  }

  Expr marker(std::string_view text) { return answers::marker(builder_, text); }

  Expr calls_of(const CallOpening& opening) {
    return answers::calls_of(builder_, tools_, opening, options_.several_calls);
  }

  /// Calls behind the marker that the format prefers; nothing where it has none.
  Expr marked_calls() {
    const CallOpening& opening = options_.call_format->calls.front();
    return opening.marker.empty() ? builder_.nothing() : calls_of(opening);
  }

  /// Calls that are the whole answer, known by how it begins.
  Expr bare_calls() {
    std::vector<Expr> ways;
    for (const CallOpening& opening : options_.call_format->calls) {
      if (opening.marker.empty()) ways.push_back(calls_of(opening));
    }
    return builder_.choice(ways);
  }

  Expr any_calls() { return builder_.sequence({gap(), builder_.choice({marked_calls(), bare_calls()})}); }

  /// The text outside calls. Free text ends where a call begins: at a marker, or, at the front of the answer, at the call's first letter.
  Expr content() {
    if (options_.content) return options_.content(builder_);
    const Expr any = builder_.any_number(builder_.characters({{0, 0x10ffff}}));
    if (options_.calls == Calls::none) return any;
    std::vector<std::string_view> markers;
    std::vector<Expr> firsts;
    for (const CallOpening& opening : options_.call_format->calls) {
      if (!opening.marker.empty()) markers.push_back(opening.marker);
      if (opening.marker.empty())
        firsts.push_back(
            builder_.byte(static_cast<uint8_t>(opening.first), static_cast<uint8_t>(opening.first)));
    }
    const Expr free_text = markers.empty() ? any : text_without(builder_, markers);
    if (firsts.empty()) return free_text;
    return builder_.minus(free_text, builder_.sequence({builder_.choice(firsts), any}));
  }

  Expr body() {
    if (options_.calls == Calls::none) return content();
    if (options_.calls == Calls::required) return any_calls();
    if (options_.content) return builder_.choice({content(), any_calls()});
    return builder_.choice({builder_.sequence({content(), builder_.optional(marked_calls())}), bare_calls()});
  }

  /// Messages of channels: the prompt ends with the assistant's <|start|>.
  Expr harmony() {
    constexpr std::array<std::string_view, 3> kMarkers = {"<|end|>", "<|start|>", "<|channel|>"};
    const Expr any = text_without(builder_, kMarkers);
    const auto message = [&](std::string_view channel, Expr text) {
      return builder_.join(marker("<|channel|>"), channel, marker("<|message|>"), text);
    };
    const Expr next =
        builder_.sequence({marker("<|end|>"), marker("<|start|>"), builder_.literal("assistant")});
    const Expr analysis = builder_.sequence({message("analysis", any), next});
    const Expr final_message = message("final", options_.content ? options_.content(builder_) : any);
    std::vector<Expr> last;
    if (options_.calls != Calls::required) last.push_back(final_message);
    if (options_.calls != Calls::none) last.push_back(answers::harmony_call(builder_, tools_));
    return builder_.sequence({builder_.optional(analysis), builder_.choice(last)});
  }

  GrammarBuilder& builder_;
  const std::vector<ToolFunction>& tools_;
  const ChatGrammarOptions& options_;
};

}  // namespace

Expr add_chat_grammar(GrammarBuilder& builder, const std::vector<ToolFunction>& tools,
                      const ChatGrammarOptions& options) {
  if (options.calls != Calls::none && (options.call_format == nullptr || !has_calls(*options.call_format)))
    fail<GrammarError>("the model's chat template has no calls that are known: see --tool-call-parser");
  return ChatGrammar(builder, tools, options).make();
}

}  // namespace minfer
