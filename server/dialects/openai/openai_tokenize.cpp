// Small endpoints: tokens and models.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "models/tokenizer/utf8.h"
#include "profiling/json/json_text.h"
#include "server/api/fields/json_fields.h"
#include "server/api/request/chat_prompt.h"
#include "server/api/request/request_fields.h"
#include "server/dialects/openai/openai.h"
#include "server/dialects/openai/openai_logprobs.h"
#include "server/http/http_message.h"

namespace minfer {
namespace {

std::vector<TokenId> tokenise(JsonFields& fields, const ApiContext& context) {
  if (fields.any("messages") != nullptr) {
    const ChatPrompt prompt = read_chat_prompt(fields, context);
    fields.report_unknown();
    return tokenise_chat(prompt, context, fields.unknown()).tokens;
  }
  const std::string text = fields.required_text("prompt");
  check_text_length("prompt", text.size(), context);
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  fields.report_unknown();
  return context.tokenizer->encode(text, {.add_special = add_special, .parse_special = true});
}

void check_answer(size_t bytes, const ApiContext& context) {
  if (bytes <= static_cast<size_t>(context.limits.max_answer_bytes)) return;
  throw bad_request({}, "The answer exceeds {} bytes (the server's --max-answer-bytes)",
                    context.limits.max_answer_bytes);
}

/// With several models it has a `status`, as of llama-server's router.
Json model_object(std::string_view name, const ListedModel& listed) {
  Json object{{"id", name},
              {"object", "model"},
              {"created", listed.model->created},
              {"owned_by", "minfer"},
              {"max_model_len", listed.model->max_model_len}};
  const bool has_failed = listed.status == "failed";
  if (!listed.status.empty()) object["status"] = {{"value", has_failed ? "unloaded" : listed.status}};
  if (has_failed) object["status"]["failed"] = true;
  return object;
}

}  // namespace

std::string tokenize_response(std::string_view body, const ApiContext& context, UnknownFields& unknown) {
  const Json root = parse_json_body(body);
  JsonFields fields(root, {}, unknown);
  read_model(fields, context);
  const bool with_texts = fields.boolean("return_token_strs").value_or(false);
  const std::vector<TokenId> tokens = tokenise(fields, context);
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
  if (tokens.size() > static_cast<size_t>(context.max_model_len))
    throw context_length_exceeded(
        "tokens", fmt::format("tokens: {}, expected at most the model's maximum context length, {}",
                              tokens.size(), context.max_model_len));
  return Json{{"prompt", replace_invalid_utf8(context.tokenizer->decode(tokens, true))}}.dump();
}

std::string tokenizer_info_response(std::string_view, const ApiContext& context, UnknownFields&) {
  const Tokenizer& tokenizer = *context.tokenizer;
  const auto text_of = [&](TokenId token) {
    return token < 0 ? Json() : Json(replace_invalid_utf8(tokenizer.piece(token, true)));
  };
  return Json{{"bos_token", text_of(tokenizer.bos())},
              {"eos_token", text_of(tokenizer.eos())},
              {"vocab_size", context.vocab_size},
              {"model_max_length", context.max_model_len}}
      .dump();
}

std::string models_response(std::string_view, const ApiContext& context, UnknownFields&) {
  Json models = Json::array();
  for (const ListedModel& listed : context.models())
    for (const std::string& name : listed.model->served_model_names)
      models.push_back(model_object(name, listed));
  return dump_json({{"object", "list"}, {"data", std::move(models)}});
}

std::string model_response(std::string_view path, const ApiContext& context, UnknownFields&) {
  const std::string name = percent_decoded(path);  // clients write the slash of "org/name" as %2F
  std::vector<std::string> names;
  for (const ListedModel& listed : context.models()) {
    const std::vector<std::string>& served = listed.model->served_model_names;
    if (context.any_model_name || std::ranges::find(served, name) != served.end())
      return dump_json(model_object(name, listed));
    names.insert(names.end(), served.begin(), served.end());
  }
  throw model_not_found(name, names);
}

const Endpoint kOpenAiEndpoints[] = {
    {"POST", "/tokenize", tokenize_response},
    {"POST", "/detokenize", detokenize_response},
    {"GET", "/tokenizer_info", tokenizer_info_response},
    {"GET", "/v1/models", models_response},
    {"GET", "/v1/models/", model_response},
    {"GET", "/version", [](std::string_view, const ApiContext&, UnknownFields&) {
       return std::string("{\"version\":\"" MINFER_VERSION "\"}");
     }}};

}  // namespace minfer
