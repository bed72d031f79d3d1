#include "engine/request/output_assembler.h"

#include <algorithm>
#include <utility>

namespace minfer {
namespace {

std::vector<size_t> borders(const std::string& text) {
  std::vector<size_t> border(text.size(), 0);
  for (size_t i = 1, length = 0; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length])
      length = border[length - 1];
    if (text[i] == text[length]) ++length;
    border[i] = length;
  }
  return border;
}

}  // namespace

OutputAssembler::OutputAssembler(const Tokenizer& tokenizer, const SamplingParams& params,
                                 int32_t stream_interval)
    : decoder_(tokenizer, !params.skip_special_tokens),
      stops_(params.stop),
      has_stops_(!params.stop.empty()),
      include_stop_(params.include_stop_in_output),
      wants_logprobs_(params.logprobs >= 0),
      min_tokens_(params.min_tokens),
      stream_interval_(std::max({1, stream_interval, params.stream_interval})) {}

bool OutputAssembler::accept(SampledToken token, bool visible) {
  ++num_tokens_;
  tokens_.push_back(token.token);
  if (visible) {
    has_stops_ ? append_text(decoder_.push(token.token)) : undecoded_.push_back(token.token);
  }
  if (wants_logprobs_) logprobs_.push_back(std::move(token));
  return !stop_hit_.empty();
}

void OutputAssembler::append_text(const std::string& decoded) {
  if (!has_stops_) {
    text_ += decoded;
    return;
  }
  const StopMatcher::Result result = stops_.push(decoded, num_tokens_ > min_tokens_);
  text_ += result.text;
  if (!result.matched.empty()) {
    stop_hit_ = result.matched;
    if (include_stop_) text_ += stop_hit_;
  }
}

bool OutputAssembler::due() const {
  if (tokens_.empty()) return false;
  return !responded_ || static_cast<int32_t>(tokens_.size()) >= stream_interval_;
}

RequestOutput OutputAssembler::take(std::optional<FinishReason> finish) {
  for (TokenId token : undecoded_)
    append_text(decoder_.push(token));
  undecoded_.clear();
  if (finish && stop_hit_.empty()) {
    append_text(decoder_.finish());
    text_ += stops_.finish();
  }
  responded_ = true;
  RequestOutput output;
  output.text = std::exchange(text_, {});
  output.tokens = std::exchange(tokens_, {});
  output.logprobs = std::exchange(logprobs_, {});
  output.finish = stop_hit_.empty() ? finish : FinishReason::stop;
  output.finish_detail = stop_hit_;
  return output;
}

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    std::vector<size_t> border = borders(stop);
    patterns_.push_back({.text = std::move(stop), .border = std::move(border)});
  }
}

StopMatcher::Result StopMatcher::push(std::string_view piece, bool may_stop) {
  if (done_) return {};
  for (size_t i = 0; i < piece.size(); ++i) {
    held_ += piece[i];
    const Pattern* longest_match = nullptr;
    for (Pattern& pattern : patterns_) {
      size_t& matched = pattern.matched;
      while (matched > 0 && pattern.text[matched] != piece[i])
        matched = pattern.border[matched - 1];
      if (pattern.text[matched] == piece[i]) ++matched;
      if (matched < pattern.text.size()) continue;
      if (!may_stop) {
        matched = pattern.border.back();
      } else if (longest_match == nullptr || longest_match->text.size() < pattern.text.size()) {
        longest_match = &pattern;
      }
    }
    if (longest_match != nullptr) {
      done_ = true;
      held_.resize(held_.size() - longest_match->text.size());
      return {.text = std::exchange(held_, {}), .matched = longest_match->text};
    }
  }
  size_t keep = 0;
  for (const Pattern& pattern : patterns_)
    keep = std::max(keep, pattern.matched);
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return {.text = std::move(text), .matched = {}};
}

std::string StopMatcher::finish() {
  done_ = true;
  return std::exchange(held_, {});
}

}  // namespace minfer
