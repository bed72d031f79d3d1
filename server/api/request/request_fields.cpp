#include "server/api/request/request_fields.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "models/gguf/printable.h"
#include "server/api/fields/api_error.h"

namespace minfer {
namespace {

/// Tokens by which an answer that is not streamed is handed over. They are not handed over all at
/// once: else one step of the engine would detokenise a long answer while the other requests wait.
constexpr int32_t kWholeAnswerInterval = 64;

/// Advice to a server that keeps, bills or routes by it, or to a model that can follow it. It
/// has no effect here, and clients that always send it lose nothing: any value is accepted.
///   user, safety_identifier              who asks, for abuse reports
///   prompt_cache_key, .._retention       routes to a machine with the prefix; here the cache goes by the tokens
///   store, metadata                      answers to keep, and their labels
///   service_tier                         how fast and dear; the response says "default"
///   prediction                           a text likely to come, for speed
///   reasoning_effort, verbosity          how much to write; chats give the former to their template
///   parallel_tool_calls                  whether several tools may be called at once; chats heed it
void ignore_advice(JsonFields& fields) {
  fields.ignore({"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "store",
                 "metadata", "prediction", "reasoning_effort", "verbosity", "parallel_tool_calls"});
}

/// Fields that other servers (OpenAI's or others') know, that would change the answer, and that this server cannot honour.
void refuse_unsupported(JsonFields& fields, const CompletionRequest& request) {
  if (request.dialect->is_chat) fields.refuse({"suffix"});
  fields.refuse({"audio", "functions", "function_call", "web_search_options", "documents", "prompt_embeds",
                 "truncate_prompt_tokens", "bad_words", "allowed_token_ids", "use_beam_search",
                 "logits_processors", "images"});
  const std::optional<int64_t> best_of = fields.integer("best_of", 1, INT32_MAX);
  if (best_of && *best_of != request.n)
    throw unsupported("best_of", "{}, only n = {} is supported", *best_of, request.n);
  const Json* modalities = fields.array("modalities");
  if (modalities != nullptr && !(modalities->size() == 1 && modalities->front() == "text"))
    throw unsupported("modalities", "only [\"text\"] is supported");
}

int32_t read_priority(JsonFields& fields, const ApiContext& context) {
  const auto priority = static_cast<int32_t>(fields.integer("priority", INT32_MIN, INT32_MAX).value_or(0));
  if (priority != 0 && !context.schedules_by_priority)
    throw unsupported("priority", "{}, but this server serves in order of arrival (--scheduling-policy fcfs)",
                      priority);
  return priority;
}

/// For servers with several tenants: requests of the same salt share cached prefixes.
std::string read_cache_salt(JsonFields& fields) {
  const std::optional<std::string> salt = fields.text("cache_salt");
  if (!salt) return {};
  if (salt->empty() || salt->size() > kMaxCacheSaltBytes)
    throw fields.error("cache_salt", "{} bytes, expected 1 to {}", salt->size(), kMaxCacheSaltBytes);
  return *salt;
}

void read_stream_options(JsonFields& fields, CompletionRequest& request) {
  JsonFields* options = fields.inner("stream_options");
  if (options == nullptr) return;
  if (!request.stream) throw fields.error("stream_options", "only allowed when stream is true");
  request.include_usage = options->boolean("include_usage").value_or(false);
  request.continuous_usage = options->boolean("continuous_usage_stats").value_or(false);
  if (request.continuous_usage && !request.include_usage)
    throw options->error("continuous_usage_stats", "only allowed when include_usage is true");
  if (options->boolean("include_obfuscation").value_or(false))
    throw unsupported("stream_options.include_obfuscation", "padding of events is not supported");
}

void check_fits(const CompletionRequest& request, int64_t max_model_len, std::optional<int64_t> max_tokens) {
  const std::string_view field = request.dialect->prompt_field;
  for (const std::vector<TokenId>& prompt : request.prompts) {
    const auto num_tokens = static_cast<int64_t>(prompt.size());
    if (num_tokens + max_tokens.value_or(1) <= max_model_len) continue;
    const std::string start =
        fmt::format("This model's maximum context length is {} tokens. However, ", max_model_len);
    if (num_tokens >= max_model_len && max_tokens != 0)
      throw context_length_exceeded(field, fmt::format("{}your {} has {} tokens, which leaves no place for "
                                                       "an answer. Please reduce its length.",
                                                       start, field, num_tokens));
    throw context_length_exceeded(
        field, fmt::format("{}you requested {} tokens ({} in the {}, {} in the completion). Please reduce "
                           "the length of the {} or of the completion.",
                           start, num_tokens + *max_tokens, num_tokens, field, *max_tokens, field));
  }
}

// Sizes for tokens of five characters, the mean of English text.
constexpr int64_t kTextBytes = 6;
// {"token":" name","logprob":-12.345678,"bytes":[32,110,97,109,101]},"top_logprobs":[
constexpr int64_t kChatEntryBytes = 76;
// 1234, -12.345678, " name", and each alternative's " name":-12.345678,
constexpr int64_t kCompletionEntryBytes = 26;
constexpr int64_t kAlternativeBytes = 20;

/// Bytes of one token with `num_top` alternatives; -1: without logprobs.
int64_t logprobs_bytes(const Dialect& dialect, int64_t num_top) {
  if (num_top < 0) return 0;
  return dialect.is_chat ? kChatEntryBytes * (1 + num_top)
                         : kCompletionEntryBytes + kAlternativeBytes * (1 + num_top);
}

int64_t answer_token_bytes(const CompletionRequest& request) {
  return kTextBytes + logprobs_bytes(*request.dialect, request.sampling.logprobs);
}

/// Bytes of the echoed prompts' logprobs, over all choices.
int64_t prompt_bytes(const CompletionRequest& request) {
  int64_t num_tokens = 0;
  for (const std::vector<TokenId>& prompt : request.prompts)
    num_tokens += static_cast<int64_t>(prompt.size());
  return num_tokens * request.n * logprobs_bytes(*request.dialect, request.sampling.prompt_logprobs);
}

// How tokens are drawn and what ends an answer. Ranges are OpenAI's where it has the field, else what SamplingParams takes.

/// Below this a draw is greedy: the most likely token's share rounds to one.
constexpr float kGreedyTemperature = 1e-5f;

void take_number(JsonFields& fields, const char* name, double low, double high, float& into) {
  if (const std::optional<double> value = fields.number(name, low, high)) into = static_cast<float>(*value);
}

void take_flag(JsonFields& fields, const char* name, bool& into) {
  into = fields.boolean(name).value_or(into);
}

/// A token id as the name of a JSON member: digits alone, without leading zeros.
TokenId read_bias_token(const std::string& path, const std::string& name, int32_t vocab_size) {
  TokenId token = -1;
  std::from_chars(name.data(), name.data() + name.size(), token);
  if (std::to_string(token) != name || token < 0 || token >= vocab_size)
    throw bad_request(path, "\"{}\", expected a token id from 0 to {}", printable(name, 60), vocab_size - 1);
  return token;
}

std::vector<LogitBias> read_logit_bias(JsonFields& fields, int32_t vocab_size) {
  std::vector<LogitBias> biases;
  const Json* object = fields.object("logit_bias");
  if (object == nullptr) return biases;
  const std::string path = fields.path("logit_bias");
  for (const auto& [name, value] : object->items()) {
    const TokenId token = read_bias_token(path, name, vocab_size);
    biases.push_back({token, static_cast<float>(read_number(value, path + '.' + name, -100.0, 100.0))});
  }
  return biases;
}

std::string read_stop_string(const Json& value, const std::string& path, const ApiLimits& limits) {
  const std::string& text = read_text(value, path);
  if (text.empty()) throw bad_request(path, "an empty string would end every answer at once");
  if (text.size() > static_cast<size_t>(limits.max_stop_bytes))
    throw bad_request(path, "{} bytes, expected at most {}", text.size(), limits.max_stop_bytes);
  return text;
}

void check_count(const std::string& path, size_t count, int32_t most) {
  if (count > static_cast<size_t>(most))
    throw bad_request(path, "{} entries, expected at most {}", count, most);
}

const Json& options_of(JsonFields& fields, const Dialect& dialect) {
  static const Json kNone = Json::object();
  const Json* options = dialect.options.empty() ? nullptr : fields.object(dialect.options);
  return options == nullptr ? kNone : *options;
}

/// temperature, top_p, top_k, min_p, the penalties, logit_bias, seed, stop, stop_token_ids,
/// include_stop_str_in_output, ignore_eos, skip_special_tokens.
void read_sampling(JsonFields& fields, const ApiContext& context, SamplingParams& sampling) {
  take_number(fields, "temperature", 0.0, 2.0, sampling.temperature);
  if (sampling.temperature < kGreedyTemperature) sampling.temperature = 0.0f;
  take_number(fields, "top_p", 0.0, 1.0, sampling.top_p);
  if (sampling.top_p == 0.0f) throw fields.error("top_p", "0, expected a number above 0, at most 1");
  const int64_t top_k = fields.integer("top_k", -1, INT32_MAX).value_or(0);
  // -1 and 0 switch it off, as does a value that keeps the whole vocabulary.
  sampling.top_k = top_k < 0 || top_k >= context.vocab_size ? 0 : static_cast<int32_t>(top_k);
  take_number(fields, "min_p", 0.0, 1.0, sampling.min_p);
  take_number(fields, "repetition_penalty", 0.01, 100.0, sampling.repetition_penalty);
  take_number(fields, "presence_penalty", -2.0, 2.0, sampling.presence_penalty);
  take_number(fields, "frequency_penalty", -2.0, 2.0, sampling.frequency_penalty);
  sampling.logit_bias = read_logit_bias(fields, context.vocab_size);
  if (const std::optional<int64_t> seed = fields.integer("seed", INT64_MIN, INT64_MAX))
    sampling.seed = static_cast<uint64_t>(*seed);
  sampling.stop = read_stop_strings(fields, "stop", context.limits);
  if (const Json* ids = fields.array("stop_token_ids")) {
    const std::string path = fields.path("stop_token_ids");
    check_count(path, ids->size(), context.limits.max_stop_tokens);
    sampling.stop_token_ids = read_token_ids(*ids, path, context.vocab_size);
  }
  take_flag(fields, "include_stop_str_in_output", sampling.include_stop_in_output);
  take_flag(fields, "ignore_eos", sampling.ignore_eos);
  take_flag(fields, "skip_special_tokens", sampling.skip_special_tokens);
}

/// stream, stream_options, stream_interval, timings_per_token.
void read_streaming(JsonFields& fields, const ApiContext& context, CompletionRequest& request) {
  request.stream = fields.boolean("stream").value_or(request.dialect->streams);
  read_stream_options(fields, request);
  request.timings = fields.boolean("timings_per_token").value_or(false);
  if (!request.stream) request.sampling.stream_interval = kWholeAnswerInterval;
  const std::optional<int64_t> interval =
      fields.integer("stream_interval", context.stream_interval, INT32_MAX);
  if (!interval) return;
  if (!request.stream) throw fields.error("stream_interval", "only allowed when stream is true");
  request.sampling.stream_interval = static_cast<int32_t>(*interval);
}

/// The most tokens that each choice may have: `wanted`, or if the client sets no number,
/// as many of `otherwise` as fit into `max_bytes`. Throws ApiError (400) if `wanted`, or
/// one token, does not fit. The prompts and the logprobs asked for must be known.
int64_t bound_max_tokens(const CompletionRequest& request, std::optional<int64_t> wanted, int64_t otherwise,
                         int64_t max_bytes) {
  const int64_t token_bytes = request.num_choices() * answer_token_bytes(request);
  const int64_t most = (max_bytes - prompt_bytes(request)) / token_bytes;
  const int64_t max_tokens = wanted.value_or(std::min(otherwise, std::max<int64_t>(most, 1)));
  const int64_t bytes = estimate_answer_bytes(request, max_tokens);
  if (bytes <= max_bytes) return max_tokens;
  constexpr double kMega = 1e6;
  throw bad_request("max_tokens",
                    "{} tokens in each of {} choices{}, about {:.0f} MB of JSON, expected at most {:.0f} MB "
                    "(the server's --max-answer-bytes). Please reduce n, max_tokens or the logprobs.",
                    max_tokens, request.num_choices(),
                    request.sampling.logprobs < 0 ? std::string{}
                                                  : fmt::format(" with the logprobs of {} alternatives each",
                                                                request.sampling.logprobs),
                    static_cast<double>(bytes) / kMega, static_cast<double>(max_bytes) / kMega);
}

}  // namespace

std::vector<std::string> read_stop_strings(JsonFields& fields, std::string_view name,
                                           const ApiLimits& limits) {
  const Json* stop = fields.any(name);
  if (stop == nullptr) return {};
  const std::string path = fields.path(name);
  if (stop->is_string()) return {read_stop_string(*stop, path, limits)};
  if (!stop->is_array()) throw wrong_value(path, *stop, "a string or an array of strings");
  check_count(path, stop->size(), limits.max_stop_strings);
  std::vector<std::string> texts;
  for (size_t i = 0; i < stop->size(); ++i)
    texts.push_back(read_stop_string((*stop)[i], fmt::format("{}[{}]", path, i), limits));
  return texts;
}

std::vector<TokenId> read_token_ids(const Json& list, const std::string& path, int32_t vocab_size) {
  if (!list.is_array()) throw wrong_value(path, list, "an array of token ids");
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& value = list[i];
    // An element's name is made only for a message: lists are long.
    if (value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(vocab_size)) {
      ids.push_back(value.get<TokenId>());
    } else {
      ids.push_back(
          static_cast<TokenId>(read_integer(value, fmt::format("{}[{}]", path, i), 0, vocab_size - 1)));
    }
  }
  return ids;
}

int64_t estimate_answer_bytes(const CompletionRequest& request, int64_t max_tokens) {
  return prompt_bytes(request) + request.num_choices() * max_tokens * answer_token_bytes(request);
}

RequestBody::RequestBody(const Dialect& dialect, std::string_view body, const ApiContext& context)
    : root(parse_json_body(body)),
      unknown(context.refuses_unknown_fields),
      fields(root, {}, unknown),
      options(options_of(fields, dialect), std::string(dialect.options), unknown) {
  request.dialect = &dialect;
  request.model = read_model(fields, context, dialect.model_tag);
  read_sampling(dialect.options.empty() ? fields : options, context, request.sampling);
  read_streaming(fields, context, request);
}

void RequestBody::end_fields() {
  options.report_unknown();
  fields.report_unknown();
  request.ignored_fields = unknown.names();
}

std::string read_model(JsonFields& fields, const ApiContext& context, std::string_view tag) {
  const std::vector<std::string>& served = context.served_model_names;
  std::string model = fields.text("model").value_or(served.front());
  const auto is_served = [&](std::string_view name) {
    return std::ranges::find(served, name) != served.end();
  };
  const size_t tag_size = model.ends_with(tag) ? tag.size() : 0;
  if (!context.any_model_name && !is_served(model) &&
      !is_served(std::string_view(model).substr(0, model.size() - tag_size)))
    throw model_not_found(model, served);
  return model;
}

std::string named_model(std::string_view body) try {
  const Json root = parse_json_body(body);
  for (const char* member : {"model", "name"})
    if (const auto found = root.find(member); found != root.end() && found->is_string()) return *found;
  return {};
} catch (const std::exception&) {
  return {};
}

std::optional<int64_t> read_max_tokens(JsonFields& fields, int64_t least) {
  const std::optional<int64_t> older = fields.integer("max_tokens", least, INT32_MAX);
  const std::optional<int64_t> newer = fields.integer("max_completion_tokens", least, INT32_MAX);
  if (older && newer && *older != *newer)
    throw fields.error("max_tokens", "{}, but max_completion_tokens is {}", *older, *newer);
  return newer ? newer : older;
}

void read_common(JsonFields& fields, const ApiContext& context, CompletionRequest& request) {
  request.n = static_cast<int32_t>(fields.integer("n", 1, context.limits.max_n).value_or(1));
  request.priority = read_priority(fields, context);
  request.cache_salt = read_cache_salt(fields);
  refuse_unsupported(fields, request);
  ignore_advice(fields);
  const Json* tier = fields.any("service_tier");
  request.service_tier = tier != nullptr && tier->is_string();
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

std::vector<TokenId> tokenise_text(const std::string& text, const std::string& suffix,
                                   const std::string& field, const ApiContext& context, bool add_special) {
  check_text_length("suffix", suffix.size(), context);
  check_text_length(field, text.size(), context);
  const Tokenizer& tokenizer = *context.tokenizer;
  if (!suffix.empty())
    return tokenizer.encode_parts(gap_parts(text, suffix, tokenizer, "suffix"), add_special);
  std::vector<TokenId> ids = tokenizer.encode(text, {.add_special = add_special, .parse_special = true});
  if (ids.empty()) throw bad_request(field, "the prompt has no tokens");
  return ids;
}

void settle_lengths(CompletionRequest& request, const ApiContext& context, std::optional<int64_t> max_tokens,
                    int64_t min_tokens, int32_t otherwise) {
  check_fits(request, context.max_model_len, max_tokens);
  int64_t left = 0;  // behind the shortest prompt; the engine ends the answers to the others where they must
  for (const std::vector<TokenId>& prompt : request.prompts)
    left = std::max(left, context.max_model_len - static_cast<int64_t>(prompt.size()));
  const int64_t most = bound_max_tokens(request, max_tokens, std::min<int64_t>(otherwise, left),
                                        context.limits.max_answer_bytes);
  if (min_tokens > most)
    throw bad_request("min_tokens", "{}, expected at most max_tokens = {}", min_tokens, most);
  request.sampling.max_tokens = static_cast<int32_t>(most);
  request.sampling.min_tokens = static_cast<int32_t>(min_tokens);
}

void settle_bound(CompletionRequest& request, const ApiContext& context, std::optional<int64_t> most,
                  int64_t window) {
  const int64_t room =
      std::min<int64_t>(window, context.max_model_len) - static_cast<int64_t>(request.prompts.front().size());
  const int64_t left = std::max<int64_t>(room, 1);
  if (most) most = std::min(*most, left);
  settle_lengths(request, context, most, 0, static_cast<int32_t>(left));
}

Request CompletionRequest::engine_request(int32_t choice, std::string id) const {
  Request made;
  made.id = std::move(id);
  made.prompt = prompt_of(choice);
  made.sampling = sampling;
  made.priority = priority;
  made.cache_salt = cache_salt;
  made.grammar = grammar;
  if (sampling.seed) made.sampling.seed = *sampling.seed + static_cast<uint64_t>(choice % n);
  return made;
}

std::vector<PromptPart> gap_parts(std::string before, std::string behind, const Tokenizer& tokenizer,
                                  std::string_view field) {
  const FimTokens fim = tokenizer.fim_tokens();
  if (!fim.complete()) throw unsupported(field, "the model has no tokens for filling a gap");
  const auto special = [&](TokenId token) {
    return PromptPart{std::string(tokenizer.piece(token, true)), true};
  };
  return {special(fim.prefix),
          {std::move(before), false},
          special(fim.suffix),
          {std::move(behind), false},
          special(fim.middle)};
}

}  // namespace minfer
