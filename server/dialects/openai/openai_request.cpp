// POST /v1/completions and /v1/chat/completions.
#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "models/tokenizer/utf8.h"
#include "server/api/fields/json_fields.h"
#include "server/api/request/chat_prompt.h"
#include "server/api/request/request_fields.h"
#include "server/dialects/openai/openai.h"

namespace minfer {
namespace {

constexpr int32_t kDefaultMaxTokens = 16;  // OpenAI's

/// One prompt as it came, not tokenised yet: a string, or an array of ids.
struct RawPrompt {
  const Json* value;
  std::string path;
};

bool is_id_list(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_number();
}

/// A string, a list of ids, or a list of either.
std::vector<RawPrompt> list_prompts(JsonFields& fields, const ApiLimits& limits) {
  constexpr std::string_view kExpected = "a string, an array of token ids or an array of these";
  const Json& prompt = fields.required("prompt", kExpected);
  if (prompt.is_string() || is_id_list(prompt)) return {{&prompt, "prompt"}};
  if (!prompt.is_array() || prompt.empty()) throw wrong_value("prompt", prompt, kExpected);
  if (prompt.size() > static_cast<size_t>(limits.max_prompts))
    throw fields.error("prompt", "{} prompts, expected at most {}", prompt.size(), limits.max_prompts);
  std::vector<RawPrompt> prompts;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const Json& each = prompt[i];
    const std::string path = fmt::format("prompt[{}]", i);
    if (!each.is_string() && !is_id_list(each))
      throw wrong_value(path, each, "a string or an array of token ids");
    prompts.push_back({&each, path});
  }
  return prompts;
}

/// `suffix`: the text behind the gap that the answer must fill; empty: the answer follows the prompt.
std::vector<TokenId> tokenise(const RawPrompt& prompt, const std::string& suffix, const ApiContext& context,
                              bool add_special) {
  const Tokenizer& tokenizer = *context.tokenizer;
  if (const auto* text = prompt.value->get_ptr<const std::string*>())
    return tokenise_text(*text, suffix, prompt.path, context, add_special);
  std::vector<TokenId> ids = read_token_ids(*prompt.value, prompt.path, context.vocab_size);
  if (suffix.empty()) return ids;
  const std::vector<PromptPart> parts = gap_parts({}, suffix, tokenizer, "suffix");
  check_text_length("suffix", suffix.size(), context);
  ids.insert(ids.begin(), tokenizer.fim_tokens().prefix);
  std::ranges::copy(tokenizer.encode_parts(std::span(parts).subspan(kGapSuffixPart), false),
                    std::back_inserter(ids));
  return ids;
}

/// `logprobs` says if logprobs are wanted, `top_logprobs` how many alternatives. -1: none wanted.
int32_t read_logprobs(JsonFields& fields, int32_t most) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto num_top = static_cast<int32_t>(fields.integer("top_logprobs", 0, most).value_or(0));
  if (!wanted && num_top > 0) throw fields.error("top_logprobs", "only allowed when logprobs is true");
  return wanted ? num_top : -1;
}

}  // namespace

CompletionRequest parse_completion_request(std::string_view body, const ApiContext& context) {
  RequestBody read(kCompletionsDialect, body, context);
  auto& [root, unknown, fields, options, request] = read;
  read_common(fields, context, request);
  request.sampling.logprobs =
      static_cast<int32_t>(fields.integer("logprobs", 0, context.limits.max_logprobs).value_or(-1));
  request.echo = fields.boolean("echo").value_or(false);
  if (request.echo) request.sampling.prompt_logprobs = request.sampling.logprobs;
  const std::optional<int64_t> max_tokens = read_max_tokens(fields, request.echo ? 0 : 1);
  const int64_t min_tokens = fields.integer("min_tokens", 0, INT32_MAX).value_or(0);
  hold_completion(request, read_structured_output(fields), context);
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  const std::string suffix = fields.text("suffix").value_or("");
  const std::vector<RawPrompt> prompts = list_prompts(fields, context.limits);
  read.end_fields();

  const int64_t num_choices = static_cast<int64_t>(prompts.size()) * request.n;
  if (num_choices > context.limits.max_choices)
    throw bad_request("n", "{} answers to {} prompts each, expected at most {} in all", request.n,
                      prompts.size(), context.limits.max_choices);
  for (const RawPrompt& prompt : prompts) {
    request.prompts.push_back(tokenise(prompt, suffix, context, add_special));
    if (!request.echo) continue;
    const bool with_special = !request.sampling.skip_special_tokens;
    request.prompt_texts.push_back(prompt.value->is_string() ? prompt.value->get<std::string>()
                                                             : replace_invalid_utf8(context.tokenizer->decode(
                                                                   request.prompts.back(), with_special)));
  }
  settle_lengths(request, context, max_tokens, min_tokens, kDefaultMaxTokens);
  return std::move(request);
}

CompletionRequest parse_chat_request(std::string_view body, const ApiContext& context) {
  RequestBody read(kChatDialect, body, context);
  auto& [root, unknown, fields, options, request] = read;
  read_common(fields, context, request);
  if (fields.boolean("echo").value_or(false))
    throw unsupported("echo", "true, but answers to chats do not repeat their messages");
  request.sampling.logprobs = read_logprobs(fields, context.limits.max_logprobs);
  const std::optional<int64_t> max_tokens = read_max_tokens(fields, 1);
  const int64_t min_tokens = fields.integer("min_tokens", 0, INT32_MAX).value_or(0);
  const ChatPrompt prompt = read_chat_prompt(fields, context);
  read.end_fields();
  set_chat_prompt(request, prompt, context, unknown);
  settle_lengths(request, context, max_tokens, min_tokens, INT32_MAX);
  return std::move(request);
}

}  // namespace minfer
