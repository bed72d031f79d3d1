// What clients of Ollama ask about the models of a server.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/api/fields/json_body.h"
#include "server/api/request/request_fields.h"
#include "server/dialects/ollama/ollama.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json details_of(const ModelFacts& facts) {
  const auto size = static_cast<double>(facts.num_parameters);
  constexpr double kBillion = 1e9;
  constexpr double kMillion = 1e6;
  return {{"format", "gguf"},
          {"family", facts.architecture},
          {"families", Json::array({facts.architecture})},
          {"parameter_size", size < kBillion ? fmt::format("{:.1f}M", size / kMillion)
                                             : fmt::format("{:.1f}B", size / kBillion)},
          {"quantization_level", facts.dtype}};
}

/// A member `models` with each served name.
Json list_models(const ApiContext& context) {
  Json models = Json::array();
  for (const std::string& served : context.served_model_names) {
    const std::string name =
        served.find(':') == std::string::npos ? served + std::string(kOllamaTag) : served;
    models.push_back({{"name", name},
                      {"model", name},
                      {"modified_at", ollama_time(context.created)},
                      {"size", context.model.bytes},
                      {"details", details_of(context.model)}});
  }
  return {{"models", std::move(models)}};
}

std::string ollama_tags_response(std::string_view, const ApiContext& context, UnknownFields&) {
  return dumped_text(list_models(context));
}

/// The models that are loaded: all, for good.
std::string ollama_ps_response(std::string_view, const ApiContext& context, UnknownFields&) {
  Json list = list_models(context);
  for (Json& model : list["models"]) {
    model.erase("modified_at");
    model["context_length"] = context.max_model_len;
  }
  return dumped_text(list);
}

}  // namespace

std::string ollama_show_response(std::string_view body, const ApiContext& context, UnknownFields& unknown) {
  Json root = parse_json_body(body);
  // The older name of the field.
  if (!root.contains("model") && root.contains("name")) root["model"] = root["name"], root.erase("name");
  JsonFields fields(root, {}, unknown);
  read_model(fields, context, kOllamaTag);
  fields.report_unknown();
  Json capabilities = Json::array({"completion"});
  if (context.finds_calls) capabilities.push_back("tools");
  if (context.finds_reasoning) capabilities.push_back("thinking");
  if (context.tokenizer->fim_tokens().complete()) capabilities.push_back("insert");
  const ModelFacts& facts = context.model;
  return dumped_text({{"modified_at", ollama_time(context.created)},
                      {"details", details_of(facts)},
                      {"model_info",
                       {{"general.architecture", facts.architecture},
                        {"general.parameter_count", facts.num_parameters},
                        {facts.architecture + ".context_length", context.max_model_len}}},
                      {"capabilities", capabilities}});
}

const Endpoint kOllamaEndpoints[] = {
    {"GET", "/api/tags", ollama_tags_response},
    {"POST", "/api/show", ollama_show_response},
    {"GET", "/api/ps", ollama_ps_response},
    {"GET", "/api/version", [](std::string_view, const ApiContext&, UnknownFields&) {
       return std::string("{\"version\":\"" MINFER_VERSION "\"}");
     }}};

}  // namespace minfer
