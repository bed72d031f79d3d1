#include "server/openai/openai_fields.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/gguf/printable.h"
#include "server/openai/answer_size.h"
#include "server/openai/json_body.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// Tokens that an answer nobody streams is handed over by. Not all at once, lest one step of the engine
/// detokenises a long answer while the other requests wait.
constexpr int32_t kWholeAnswerInterval = 64;

/// What OpenAI's server keeps, bills, routes or limits by, and this one has no use for: accepted for the sake
/// of clients that always send them, once their types hold.
///   user, safety_identifier  who asks, for abuse reports
///   prompt_cache_key         routes to a machine with the prefix; here the cache goes by the tokens
///   metadata                 labels of stored answers
void read_without_effect(JsonFields& fields) {
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key"})
    fields.text(name);
  if (const Json* metadata = fields.object("metadata")) {
    for (const auto& [name, value] : metadata->items())
      read_text(value, fields.path("metadata." + printable(name)));
  }
}

/// Fields with a value that asks for what happens anyway; any other is refused.
void read_single_valued(JsonFields& fields, CompletionRequest& request) {
  if (fields.boolean("store").value_or(false)) {
    throw unsupported("store", "store: true, but this server keeps no answers");
  }
  if (const std::optional<std::string> tier = fields.text("service_tier")) {
    if (*tier != "auto" && *tier != "default") {
      throw unsupported("service_tier", "service_tier: only \"auto\" and \"default\" are supported");
    }
    request.service_tier = true;
  }
  if (const Json* format = fields.object("response_format")) {
    JsonFields format_fields(*format, "response_format");
    if (format_fields.required_text("type") != "text") {
      throw unsupported("response_format", "response_format: only {\"type\":\"text\"} is supported");
    }
    format_fields.refuse_unknown();
  }
}

int32_t read_priority(JsonFields& fields, const ApiContext& context) {
  const auto priority = static_cast<int32_t>(fields.integer("priority", INT32_MIN, INT32_MAX).value_or(0));
  if (priority != 0 && !context.schedules_by_priority) {
    throw unsupported("priority", fmt::format("priority: {}, but this server serves in order of arrival "
                                              "(--scheduling-policy fcfs)",
                                              priority));
  }
  return priority;
}

/// For servers with several tenants: which of them share cached prefixes.
std::string read_cache_salt(JsonFields& fields) {
  const std::optional<std::string> salt = fields.text("cache_salt");
  if (!salt) return {};
  if (salt->empty() || salt->size() > kMaxCacheSaltBytes) {
    throw fields.error("cache_salt",
                       fmt::format("{} bytes, expected 1 to {}", salt->size(), kMaxCacheSaltBytes));
  }
  return *salt;
}

void read_stream_options(JsonFields& fields, CompletionRequest& request) {
  const Json* object = fields.object("stream_options");
  if (object == nullptr) return;
  if (!request.stream) throw fields.error("stream_options", "only allowed when stream is true");
  JsonFields options(*object, "stream_options");
  request.include_usage = options.boolean("include_usage").value_or(false);
  request.continuous_usage = options.boolean("continuous_usage_stats").value_or(false);
  if (request.continuous_usage && !request.include_usage) {
    throw options.error("continuous_usage_stats", "only allowed when include_usage is true");
  }
  if (options.boolean("include_obfuscation").value_or(false)) {
    throw unsupported("stream_options.include_obfuscation",
                      "stream_options.include_obfuscation: padding of events is not supported");
  }
  options.refuse_unknown();
}

std::string_view prompt_field(const CompletionRequest& request) {
  return request.endpoint == Endpoint::chat ? "messages" : "prompt";
}

void check_fits(const CompletionRequest& request, int64_t max_model_len, std::optional<int64_t> max_tokens) {
  const std::string_view field = prompt_field(request);
  for (const std::vector<TokenId>& prompt : request.prompts) {
    const auto num_tokens = static_cast<int64_t>(prompt.size());
    if (num_tokens + max_tokens.value_or(1) <= max_model_len) continue;
    const std::string start =
        fmt::format("This model's maximum context length is {} tokens. However, ", max_model_len);
    if (num_tokens >= max_model_len) {
      throw context_length_exceeded(field, fmt::format("{}your {} has {} tokens, which leaves no place for "
                                                       "an answer. Please reduce its length.",
                                                       start, field, num_tokens));
    }
    throw context_length_exceeded(
        field, fmt::format("{}you requested {} tokens ({} in the {}, {} in the completion). Please reduce "
                           "the length of the {} or of the completion.",
                           start, num_tokens + *max_tokens, num_tokens, field, *max_tokens, field));
  }
}

}  // namespace

std::string read_model(JsonFields& fields, const ApiContext& context) {
  std::string model = fields.required_text("model");
  if (std::ranges::find(context.served_model_names, model) == context.served_model_names.end()) {
    throw model_not_found(printable(model));
  }
  return model;
}

void read_streaming(JsonFields& fields, const ApiContext& context, CompletionRequest& request) {
  request.stream = fields.boolean("stream").value_or(false);
  read_stream_options(fields, request);
  if (!request.stream) request.sampling.stream_interval = kWholeAnswerInterval;
  const std::optional<int64_t> interval =
      fields.integer("stream_interval", context.stream_interval, INT32_MAX);
  if (!interval) return;
  if (!request.stream) throw fields.error("stream_interval", "only allowed when stream is true");
  request.sampling.stream_interval = static_cast<int32_t>(*interval);
}

void read_common(JsonFields& fields, const ApiContext& context, CompletionRequest& request) {
  request.n = static_cast<int32_t>(fields.integer("n", 1, context.limits.max_n).value_or(1));
  request.priority = read_priority(fields, context);
  request.cache_salt = read_cache_salt(fields);
  read_single_valued(fields, request);
  read_without_effect(fields);
}

void check_text_length(std::string_view field, size_t bytes, const ApiContext& context) {
  // Normal forms of Unicode shorten a text to a third at most.
  constexpr size_t kSlack = 4;
  const size_t most = kSlack * context.longest_token_bytes * static_cast<size_t>(context.max_model_len);
  if (context.longest_token_bytes == 0 || bytes <= most) return;
  throw context_length_exceeded(
      field, fmt::format("This model's maximum context length is {} tokens. However, your {} has {} bytes, "
                         "which cannot fit. Please reduce its length.",
                         context.max_model_len, field, bytes));
}

void settle_lengths(CompletionRequest& request, const ApiContext& context, std::optional<int64_t> max_tokens,
                    int64_t min_tokens, int32_t otherwise) {
  check_fits(request, context.max_model_len, max_tokens);
  int64_t left = 0;  // behind the shortest prompt; the engine ends the answers to the others where they must
  for (const std::vector<TokenId>& prompt : request.prompts)
    left = std::max(left, context.max_model_len - static_cast<int64_t>(prompt.size()));
  const int64_t most = bound_max_tokens(request, max_tokens, std::min<int64_t>(otherwise, left),
                                        context.limits.max_answer_bytes);
  if (min_tokens > most) {
    throw bad_request("min_tokens",
                      fmt::format("min_tokens: {}, expected at most max_tokens = {}", min_tokens, most));
  }
  request.sampling.max_tokens = static_cast<int32_t>(most);
  request.sampling.min_tokens = static_cast<int32_t>(min_tokens);
}

Request CompletionRequest::engine_request(int32_t choice, std::string id) const {
  Request made;
  made.id = std::move(id);
  made.prompt = prompt_of(choice);
  made.sampling = sampling;
  made.priority = priority;
  made.cache_salt = cache_salt;
  if (sampling.seed) made.sampling.seed = *sampling.seed + static_cast<uint64_t>(choice % n);
  return made;
}

}  // namespace minfer
