#include "server/api/fields/api_error.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "models/gguf/printable.h"
#include "profiling/json/json_text.h"

namespace minfer {
namespace {

constexpr const char* kInvalidRequest = "invalid_request_error";

void add_nullable(JsonText& json, std::string_view name, const std::string& value) {
  json.key(name);
  value.empty() ? json.null() : json.value(value);
}

}  // namespace

ApiError::ApiError(int status, std::string type, const std::string& message, std::string param,
                   std::string code)
    : Error(message),
      status_(status),
      type_(std::move(type)),
      param_(std::move(param)),
      code_(std::move(code)) {}

std::string error_json(const ApiError& error) {
  std::string text;
  JsonText json(text);
  json.open('{').key("error").open('{');
  json.field("message", std::string_view(error.what())).field("type", error.type());
  add_nullable(json, "param", error.param());
  add_nullable(json, "code", error.code());
  json.close('}').close('}');
  return text;
}

ApiError bad_request(std::string_view param, std::string_view message) {
  return {400, kInvalidRequest, std::string(message), std::string(param)};
}

ApiError unknown_field(std::string_view param) {
  return {400, kInvalidRequest, fmt::format("Unrecognized request argument supplied: {}", param),
          std::string(param)};
}

ApiError unsupported(std::string_view param, std::string_view message) {
  return {400, kInvalidRequest, std::string(message), std::string(param), "unsupported_value"};
}

ApiError context_length_exceeded(std::string_view param, std::string_view message) {
  return {400, kInvalidRequest, std::string(message), std::string(param), "context_length_exceeded"};
}

ApiError invalid_api_key(std::string_view message) {
  return {401, "authentication_error", std::string(message), {}, "invalid_api_key"};
}

ApiError model_not_found(std::string_view model, std::span<const std::string> served) {
  constexpr size_t kMostNamed = 20;
  std::string message = fmt::format("The model `{}` does not exist. This server has ", printable(model));
  for (size_t i = 0; i < std::min(served.size(), kMostNamed); ++i)
    message += fmt::format("{}`{}`", i == 0 ? "" : ", ", printable(served[i]));
  if (served.size() > kMostNamed) message += ", ...";
  return {404, kInvalidRequest, message, "model", "model_not_found"};
}

ApiError not_found(std::string_view message) {
  return {404, kInvalidRequest, std::string(message)};
}

ApiError method_not_allowed(std::string_view message) {
  return {405, kInvalidRequest, std::string(message)};
}

ApiError too_large(std::string_view message) {
  return {413, kInvalidRequest, std::string(message)};
}

ApiError overloaded(std::string_view message) {
  return {429, "rate_limit_error", std::string(message), {}, "rate_limit_exceeded"};
}

ApiError server_error(std::string_view message) {
  return {500, "server_error", std::string(message)};
}

ApiError unavailable(std::string_view message) {
  return {503, "server_error", std::string(message)};
}

ApiError failure(const std::exception& error) {
  if (const auto* api_error = dynamic_cast<const ApiError*>(&error)) return *api_error;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return unavailable("the server has no memory left for this request; try again later");
  return server_error(error.what());
}

}  // namespace minfer
