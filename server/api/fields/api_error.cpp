#include "server/api/fields/api_error.h"

#include <algorithm>

#include "models/gguf/printable.h"
#include "server/api/fields/json_fields.h"

namespace minfer {

std::string_view ApiError::type() const {
  if (status_ == 401) return "authentication_error";
  if (status_ == 429) return "rate_limit_error";
  return status_ >= 500 ? "server_error" : "invalid_request_error";
}

std::string_view ApiError::code() const {
  if (status_ == 401) return "invalid_api_key";
  return status_ == 429 ? "rate_limit_exceeded" : std::string_view(code_);
}

std::string error_json(const ApiError& error) {
  const auto nullable = [](std::string_view text) { return text.empty() ? Json() : Json(text); };
  return dump_json({{"error",
                     {{"message", error.what()},
                      {"type", error.type()},
                      {"param", nullable(error.param())},
                      {"code", nullable(error.code())}}}});
}

ApiError field_error(std::string_view param, std::string_view message, std::string code) {
  return {400, fmt::format("{}{}{}", param, param.empty() ? "" : ": ", message), std::string(param),
          std::move(code)};
}

ApiError context_length_exceeded(std::string_view param, std::string_view message) {
  return {400, std::string(message), std::string(param), "context_length_exceeded"};
}

ApiError model_not_found(std::string_view model, std::span<const std::string> served) {
  constexpr size_t kMostNamed = 20;
  std::string message = fmt::format("The model `{}` does not exist. This server has ", printable(model));
  for (size_t i = 0; i < std::min(served.size(), kMostNamed); ++i)
    message += fmt::format("{}`{}`", i == 0 ? "" : ", ", printable(served[i]));
  if (served.size() > kMostNamed) message += ", ...";
  return {404, message, "model", "model_not_found"};
}

ApiError failure(const std::exception& error) {
  if (const auto* api_error = dynamic_cast<const ApiError*>(&error)) return *api_error;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return {503, "the server has no memory left for this request; try again later"};
  return {500, error.what()};
}

}  // namespace minfer
