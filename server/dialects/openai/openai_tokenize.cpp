#include "server/dialects/openai/openai_tokenize.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/tokenizer/utf8.h"
#include "profiling/json/json_text.h"
#include "server/api/fields/json_fields.h"
#include "server/api/request/chat_prompt.h"
#include "server/api/request/request_fields.h"
#include "server/dialects/openai/openai_logprobs.h"
#include "server/http/http_url.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

std::vector<TokenId> tokenise_text(JsonFields& fields, const ApiContext& context) {
  const std::string text = fields.required_text("prompt");
  check_text_length("prompt", text.size(), context);
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  fields.report_unknown();
  return context.tokenizer->encode(text, {.add_special = add_special, .parse_special = true});
}

void check_answer(size_t bytes, const ApiContext& context) {
  if (bytes <= static_cast<size_t>(context.limits.max_answer_bytes)) return;
  throw bad_request({}, fmt::format("The answer exceeds {} bytes (the server's --max-answer-bytes)",
                                    context.limits.max_answer_bytes));
}

std::vector<TokenId> tokenise_messages(JsonFields& fields, const ApiContext& context) {
  const ChatPrompt prompt = read_chat_prompt(fields, context);
  fields.report_unknown();
  return tokenise_chat(prompt, context, fields.unknown()).tokens;
}

void write_model(JsonText& json, const std::string& name, const ApiContext& context) {
  json.open('{').field("id", name).field("object", "model");
  json.field("created", context.created).field("owned_by", "minfer");
  json.field("max_model_len", context.max_model_len).close('}');
}

}  // namespace

std::string tokenize_response(std::string_view body, const ApiContext& context, UnknownFields& unknown) {
  const Json root = parse_json_body(body);
  JsonFields fields(root, {}, unknown);
  read_model(fields, context);
  const bool with_texts = fields.boolean("return_token_strs").value_or(false);
  const std::vector<TokenId> tokens =
      fields.any("messages") != nullptr ? tokenise_messages(fields, context) : tokenise_text(fields, context);
  std::string text;
  JsonText json(text);
  json.open('{').field("count", static_cast<int64_t>(tokens.size()));
  json.field("max_model_len", context.max_model_len).key("tokens").open('[');
  for (const TokenId token : tokens)
    json.value(token);
  check_answer(text.size(), context);
  json.close(']').key("token_strs");
  if (with_texts) {
    json.open('[');
    for (const TokenId token : tokens) {
      json.value(token_text(*context.tokenizer, token));
      check_answer(text.size(), context);
    }
    json.close(']');
  } else {
    json.null();
  }
  json.close('}');
  return text;
}

std::string detokenize_response(std::string_view body, const ApiContext& context, UnknownFields& unknown) {
  const Json root = parse_json_body(body);
  JsonFields fields(root, {}, unknown);
  read_model(fields, context);
  const std::vector<TokenId> tokens =
      read_token_ids(fields.required_array("tokens"), "tokens", context.vocab_size);
  fields.report_unknown();
  if (tokens.size() > static_cast<size_t>(context.max_model_len)) {
    throw context_length_exceeded(
        "tokens", fmt::format("tokens: {}, expected at most the model's maximum context length, {}",
                              tokens.size(), context.max_model_len));
  }
  std::string text;
  JsonText json(text);
  json.open('{').field("prompt", replace_invalid_utf8(context.tokenizer->decode(tokens, true))).close('}');
  return text;
}

std::string tokenizer_info_response(const ApiContext& context) {
  const Tokenizer& tokenizer = *context.tokenizer;
  std::string text;
  JsonText json(text);
  json.open('{');
  for (const auto& [name, token] :
       {std::pair("bos_token", tokenizer.bos()), {"eos_token", tokenizer.eos()}}) {
    json.key(name);
    token < 0 ? json.null() : json.value(replace_invalid_utf8(tokenizer.piece(token, true)));
  }
  json.field("vocab_size", context.vocab_size).field("model_max_length", context.max_model_len).close('}');
  return text;
}

std::string models_response(const ApiContext& context) {
  std::string text;
  JsonText json(text);
  json.open('{').field("object", "list").key("data").open('[');
  for (const std::string& name : context.served_model_names)
    write_model(json, name, context);
  json.close(']').close('}');
  return text;
}

std::string model_response(std::string_view path, const ApiContext& context) {
  const std::string name = percent_decoded(path);  // clients write the slash of "org/name" as %2F
  const bool is_served =
      std::ranges::find(context.served_model_names, name) != context.served_model_names.end();
  if (!is_served && !context.any_model_name) throw model_not_found(name, context.served_model_names);
  std::string text;
  JsonText json(text);
  write_model(json, name, context);
  return text;
}

std::string version_response() {
  return "{\"version\":\"" MINFER_VERSION "\"}";
}

const Endpoint kOpenAiEndpoints[] = {
    {"POST", "/tokenize", tokenize_response},
    {"POST", "/detokenize", detokenize_response},
    {"GET", "/tokenizer_info",
     [](std::string_view, const ApiContext& context, UnknownFields&) {
       return tokenizer_info_response(context);
     }},
    {"GET", "/v1/models",
     [](std::string_view, const ApiContext& context, UnknownFields&) { return models_response(context); }},
    {"GET", "/v1/models/",
     [](std::string_view name, const ApiContext& context, UnknownFields&) {
       return model_response(name, context);
     }},
    {"GET", "/version",
     [](std::string_view, const ApiContext&, UnknownFields&) { return version_response(); }}};

}  // namespace minfer
