#include "server/api/answer/answer_reader.h"

#include <algorithm>
#include <random>

namespace minfer {
namespace {

constexpr int kIdLetters = 24;
constexpr int kShortIdLetters = 9;

bool is_text(ChatDelta::Kind kind) {
  return kind == ChatDelta::Kind::content || kind == ChatDelta::Kind::reasoning;
}

AnswerPart::Kind part_kind(ChatDelta::Kind kind) {
  if (kind == ChatDelta::Kind::content) return AnswerPart::Kind::content;
  return kind == ChatDelta::Kind::reasoning ? AnswerPart::Kind::reasoning : AnswerPart::Kind::call;
}

}  // namespace

std::string_view name(AnswerEnd end) {
  if (end == AnswerEnd::calls) return "tool_calls";
  return end == AnswerEnd::length ? "length" : "stop";
}

AnswerReader::AnswerReader(const CompletionRequest& request, const ApiContext& context)
    : one_call_(request.parsing.one_call),
      shows_reasoning_(request.parsing.shows_reasoning),
      custom_tools_(request.custom_tools),
      reasoning_tokens_(request.parsing.finds_reasoning() ? 0 : -1) {
  if (!request.parsing.enabled) return;
  parser_ = context.make_answer_parser(request.parsing.options);
  if (request.parsing.hides_special) special_.emplace(*context.tokenizer);
}

void AnswerReader::read(const RequestOutput& output, std::vector<ChatDelta>& deltas) {
  if (end_) return;
  std::vector<ChatDelta> found;
  if (parser_) {
    if (special_) special_->see(output.tokens);
    parser_->push(output.text, found);
    if (output.finish) parser_->finish(found);
    count_tokens(output, found);
  } else {
    found.push_back({.text = output.text});
  }
  for (ChatDelta& delta : found)
    if (!end_) keep(std::move(delta), deltas);
  if (!output.finish || end_) return;
  release_text(deltas);
  end_input(false, deltas);
  if (output.finish == FinishReason::length) {
    end_ = AnswerEnd::length;
  } else if (!output.finish_detail.empty()) {
    end_ = AnswerEnd::stop_string;
  } else {
    end_ = num_calls_ > 0 ? AnswerEnd::calls : AnswerEnd::stop;
  }
}

/// Tokens of an output that gave nothing count with the next output that gives something.
void AnswerReader::count_tokens(const RequestOutput& output, const std::vector<ChatDelta>& found) {
  uncounted_tokens_ += static_cast<int64_t>(output.tokens.size());
  int64_t bytes = 0;
  int64_t reasoning_bytes = 0;
  for (const ChatDelta& delta : found) {
    const auto size = static_cast<int64_t>(delta.text.size());
    bytes += size;
    if (delta.kind == ChatDelta::Kind::reasoning) reasoning_bytes += size;
  }
  if (bytes == 0) return;
  reasoning_tokens_ += std::exchange(uncounted_tokens_, 0) * reasoning_bytes / bytes;
}

void AnswerReader::keep(ChatDelta delta, std::vector<ChatDelta>& deltas) {
  if (delta.kind != text_kind_) release_text(deltas);
  if (is_text(delta.kind)) {
    text_kind_ = delta.kind;
    return give_text(special_ ? special_->push(delta.text) : std::move(delta.text), deltas);
  }
  const bool begins = delta.kind == ChatDelta::Kind::call_begin,
             ends = delta.kind == ChatDelta::Kind::call_end;
  if (begins) {
    ++num_calls_;
    if (custom_tools_.contains(delta.text)) input_.emplace();
  } else if (ends) {
    end_input(true, deltas);
  } else if (input_) {
    delta.text = input_->push(delta.text);
  }
  if (begins || ends || !delta.text.empty()) deltas.push_back(std::move(delta));
  if (ends && one_call_) end_ = AnswerEnd::calls;
}

void AnswerReader::give_text(std::string text, std::vector<ChatDelta>& deltas) {
  if (text.empty() || (text_kind_ == ChatDelta::Kind::reasoning && !shows_reasoning_)) return;
  deltas.push_back({.kind = text_kind_, .text = std::move(text)});
}

void AnswerReader::release_text(std::vector<ChatDelta>& deltas) {
  if (special_) give_text(special_->finish(), deltas);
}

/// `whole`: the open call has ended; else it was cut.
void AnswerReader::end_input(bool whole, std::vector<ChatDelta>& deltas) {
  if (!input_) return;
  std::string rest = input_->finish(whole);
  input_.reset();
  if (!rest.empty()) deltas.push_back({.kind = ChatDelta::Kind::call_arguments, .text = std::move(rest)});
}

bool AnswerParts::begins_part(const ChatDelta& delta) const {
  if (delta.kind == ChatDelta::Kind::call_begin) return true;
  return is_text(delta.kind) && (parts_.empty() || parts_.back().kind != part_kind(delta.kind));
}

void AnswerParts::add(const ChatDelta& delta) {
  if (begins_part(delta)) {
    end_last();
    parts_.push_back({.kind = part_kind(delta.kind)});
  }
  if (delta.kind == ChatDelta::Kind::call_end) return end_last();
  if (parts_.empty()) return;
  AnswerPart& part = parts_.back();
  if (delta.kind == ChatDelta::Kind::call_begin) {
    part.name = delta.text;
    part.id = draw_id(call_prefix_, call_letters_);
    ++num_calls_;
  } else {
    part.text += delta.text;
  }
}

std::string AnswerParts::text(AnswerPart::Kind kind) const {
  std::string text;
  for (const AnswerPart& part : parts_)
    if (part.kind == kind) text += part.text;
  return text;
}

ParsedChoice::ParsedChoice(const CompletionRequest& request, const ApiContext& context)
    : reader(request, context),
      parts(context.short_call_ids ? AnswerParts("", kShortIdLetters)
                                   : AnswerParts(std::string(request.dialect->call_prefix), kIdLetters)) {}

void SpecialText::see(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (!tokenizer_.is_control(token)) continue;
    const std::string_view text = tokenizer_.piece(token, true);
    if (!text.empty() && std::ranges::find(texts_, text) == texts_.end()) texts_.push_back(text);
  }
}

std::string SpecialText::push(std::string_view text) {
  if (texts_.empty()) return std::string(text);
  const std::string all = std::exchange(held_, {}).append(text);
  std::string kept;
  for (size_t i = 0; i < all.size();) {
    const std::string_view rest = std::string_view(all).substr(i);
    const auto whole =
        std::ranges::find_if(texts_, [&](std::string_view each) { return rest.starts_with(each); });
    if (whole != texts_.end()) {
      i += whole->size();
    } else if (std::ranges::any_of(texts_, [&](std::string_view each) { return each.starts_with(rest); })) {
      held_ = rest;
      break;
    } else {
      kept += all[i++];
    }
  }
  return kept;
}

std::string draw_id(std::string_view prefix, int length) {
  std::random_device random;
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::uniform_int_distribution<size_t> place(0, kLetters.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < length; ++i)
    id += kLetters[place(random)];
  return id;
}

}  // namespace minfer
