#include "server/openai/openai_body.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace minfer {
namespace {

/// The stop token that the client named and the answer ended with, or -1.
TokenId named_stop_token(const SamplingParams& sampling, const Tokenizer& tokenizer,
                         const RequestOutput& output) {
  if (output.finish != FinishReason::stop || output.tokens.empty()) return -1;
  const TokenId last = output.tokens.back();
  if (!sampling.ignore_eos && tokenizer.is_end(last)) return -1;
  const bool named = std::ranges::find(sampling.stop_token_ids, last) != sampling.stop_token_ids.end();
  return named ? last : -1;
}

}  // namespace

void write_head(JsonText& json, const CompletionRequest& request, const ResponseIdentity& identity,
                std::string_view system_fingerprint, std::string_view object) {
  json.field("id", identity.id).field("object", object).field("created", identity.created);
  json.field("model", request.model).field("system_fingerprint", system_fingerprint);
  if (request.service_tier) json.field("service_tier", std::string_view("default"));
}

void write_usage(JsonText& json, const Usage& usage) {
  json.open('{').field("prompt_tokens", usage.prompt_tokens);
  json.field("completion_tokens", usage.completion_tokens);
  json.field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").open('{').field("cached_tokens", usage.cached_tokens);
  json.close('}').close('}');
}

std::string finish_json(const CompletionRequest& request, const Tokenizer& tokenizer,
                        const RequestOutput& output) {
  std::string text = ",\"finish_reason\":";
  JsonText json(text);
  json.value(name(*output.finish)).key("stop_reason");
  const TokenId token = named_stop_token(request.sampling, tokenizer, output);
  if (!output.finish_detail.empty()) {
    json.value(output.finish_detail);
  } else if (token >= 0) {
    json.value(token);
  } else {
    json.null();
  }
  return text;
}

TextOffsets first_offsets(const CompletionRequest& request, const Tokenizer& tokenizer, int32_t choice) {
  const bool with_special = !request.sampling.skip_special_tokens;
  if (request.sampling.prompt_logprobs < 0) return {tokenizer, with_special, 0};
  TextOffsets of_prompt(tokenizer, with_special, 0);
  for (const TokenId token : request.prompt_of(choice))
    of_prompt.push(token);
  return {tokenizer, with_special, count_characters(request.prompt_text_of(choice)) - of_prompt.next()};
}

RequestOutput without_answer(RequestOutput output) {
  output.text.clear();
  output.logprobs.clear();
  output.finish_detail.clear();
  if (output.finish) output.finish = FinishReason::length;
  return output;
}

std::vector<SampledToken> shown_tokens(const CompletionRequest& request, int32_t choice,
                                       RequestOutput output) {
  const bool is_first = output.output_tokens == static_cast<int32_t>(output.tokens.size());
  if (request.sampling.prompt_logprobs < 0 || !is_first) return std::move(output.logprobs);
  std::vector<SampledToken> tokens = std::move(output.prompt_logprobs);
  tokens.insert(tokens.begin(),
                {request.prompt_of(choice).front(), std::numeric_limits<float>::quiet_NaN(), {}});
  std::ranges::move(output.logprobs, std::back_inserter(tokens));
  return tokens;
}

}  // namespace minfer
