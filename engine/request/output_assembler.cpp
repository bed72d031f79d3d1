#include "engine/request/output_assembler.h"

#include <algorithm>
#include <utility>

namespace minfer {

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

}  // namespace minfer
