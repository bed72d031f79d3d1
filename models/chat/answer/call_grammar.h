#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "models/chat/answer/chat_format.h"
#include "models/chat/answer/chat_grammar.h"

namespace minfer::answers {

// Grammar expressions for the texts of calls in each format.

/// A marker: the control token with this text, or the plain text if there is no such token. Empty: nothing.
GrammarBuilder::Expr marker(GrammarBuilder& builder, std::string_view text);
/// Any text without these markers.
GrammarBuilder::Expr text_without(GrammarBuilder& builder, std::span<const std::string_view> markers);
/// The calls of a region, with its opening marker in front.
GrammarBuilder::Expr calls_of(GrammarBuilder& builder, const std::vector<ToolFunction>& tools,
                              const CallOpening& opening, bool several);
/// Behind it <|call|> ends the answer.
GrammarBuilder::Expr harmony_call(GrammarBuilder& builder, const std::vector<ToolFunction>& tools);

}  // namespace minfer::answers
