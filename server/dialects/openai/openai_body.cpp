#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "server/dialects/openai/openai_response.h"

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
  json.close('}');
  if (usage.reasoning_tokens >= 0) {
    json.key("completion_tokens_details").open('{').field("reasoning_tokens", usage.reasoning_tokens);
    json.close('}');
  }
  json.close('}');
}

std::string finish_json(const CompletionRequest& request, const Tokenizer& tokenizer,
                        const RequestOutput& output, const std::optional<AnswerEnd>& end) {
  std::string text = ",\"finish_reason\":";
  JsonText json(text);
  json.value(end ? name(*end) : name(*output.finish)).key("stop_reason");
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

std::unique_ptr<ParsedChoice> make_parsed_choice(const CompletionRequest& request,
                                                 const ApiContext& context) {
  return request.parsing.enabled ? std::make_unique<ParsedChoice>(request, context) : nullptr;
}

std::string delta_json(const CompletionRequest& request, const ChatDelta& delta, const AnswerParts& parts,
                       CustomInput& input) {
  std::string text;
  JsonText json(text);
  if (delta.kind == ChatDelta::Kind::content) {
    json.field("content", delta.text);
    return text;
  }
  if (delta.kind == ChatDelta::Kind::reasoning) {
    json.field("reasoning_content", delta.text);
    return text;
  }
  const AnswerPart& call = parts.last();
  const bool is_custom = request.custom_tools.contains(call.name);
  std::string more;
  if (delta.kind == ChatDelta::Kind::call_begin) {
    input = {};
  } else if (delta.kind == ChatDelta::Kind::call_arguments) {
    more = is_custom ? input.push(delta.text) : delta.text;
  } else if (is_custom) {
    more = input.finish(true);
  }
  if (more.empty() && delta.kind != ChatDelta::Kind::call_begin) return text;
  json.key("tool_calls").open('[').open('{').field("index", parts.num_calls() - 1);
  if (delta.kind == ChatDelta::Kind::call_begin)
    json.field("id", call.id).field("type", std::string_view(is_custom ? "custom" : "function"));
  json.key(is_custom ? "custom" : "function").open('{');
  if (delta.kind == ChatDelta::Kind::call_begin) json.field("name", delta.text);
  json.field(is_custom ? "input" : "arguments", more).close('}').close('}').close(']');
  return text;
}

std::string rest_json(const CompletionRequest& request, const AnswerParts& parts, CustomInput& input) {
  std::string text;
  if (parts.parts().empty() || parts.last().kind != AnswerPart::Kind::call || parts.last().whole ||
      !request.custom_tools.contains(parts.last().name))
    return text;
  const std::string rest = input.finish(false);
  if (rest.empty()) return text;
  JsonText json(text);
  json.key("tool_calls").open('[').open('{').field("index", parts.num_calls() - 1);
  json.key("custom").open('{').field("input", rest).close('}').close('}').close(']');
  return text;
}

void write_message(JsonText& json, const CompletionRequest& request, const AnswerParts& parts) {
  const std::string content = parts.text(AnswerPart::Kind::content);
  const std::string reasoning = parts.text(AnswerPart::Kind::reasoning);
  json.open('{').field("role", std::string_view("assistant")).key("content");
  content.empty() && parts.num_calls() > 0 ? json.null() : json.value(content);
  json.key("refusal").null();
  if (!reasoning.empty()) json.field("reasoning_content", reasoning);
  if (parts.num_calls() > 0) {
    json.key("tool_calls").open('[');
    for (const AnswerPart& part : parts.parts()) {
      if (part.kind != AnswerPart::Kind::call) continue;
      const bool is_custom = request.custom_tools.contains(part.name);
      const std::string_view type = is_custom ? "custom" : "function";
      json.open('{').field("id", part.id).field("type", type).key(type).open('{').field("name", part.name);
      is_custom ? json.field("input", custom_input(part.text, part.whole))
                : json.field("arguments", part.text);
      json.close('}').close('}');
    }
    json.close(']');
  }
  json.close('}');
}

TextOffsets first_offsets(const CompletionRequest& request, const Tokenizer& tokenizer, int32_t choice) {
  const bool with_special = !request.sampling.skip_special_tokens;
  if (request.sampling.prompt_logprobs < 0) return {tokenizer, with_special, 0};
  TextOffsets of_prompt(tokenizer, with_special, 0);
  for (const TokenId token : request.prompt_of(choice))
    of_prompt.push(token);
  return {tokenizer, with_special, count_characters(request.prompt_text_of(choice)) - of_prompt.next()};
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
