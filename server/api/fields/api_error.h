#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error_types.h"

namespace minfer {

/// A request that is answered with OpenAI's error object instead of a result. The message
/// is for the client: it names the field, the expected value and the value found.
class ApiError : public Error {
 public:
  /// `status`: of HTTP. Empty `param` (the field at fault) and `code` become null.
  ApiError(int status, const std::string& message, std::string param = {}, std::string code = {})
      : Error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}

  int status() const { return status_; }
  /// "invalid_request_error", "authentication_error", "rate_limit_error" or "server_error", by the status.
  std::string_view type() const;
  const std::string& param() const { return param_; }
  /// That of the status, if it has one, unless the error has its own.
  std::string_view code() const;

 private:
  int status_;
  std::string param_;
  std::string code_;
};

/// {"error":{"message":...,"type":...,"param":...,"code":...}}, valid UTF-8 whatever the message holds.
std::string error_json(const ApiError& error);

/// 400 with the message "PARAM: MESSAGE", or MESSAGE alone where no single field is at fault and `param` is empty.
ApiError field_error(std::string_view param, std::string_view message, std::string code = {});

/// The same for a body or field that cannot be used; the message is formatted.
template <class... Args>
ApiError bad_request(std::string_view param, fmt::format_string<Args...> message, Args&&... args) {
  return field_error(param, fmt::format(message, std::forward<Args>(args)...));
}
/// The same for a field, or a value of it, that OpenAI's server knows and this one does not.
template <class... Args>
ApiError unsupported(std::string_view param, fmt::format_string<Args...> message, Args&&... args) {
  return field_error(param, fmt::format(message, std::forward<Args>(args)...), "unsupported_value");
}
/// 400: prompt, or prompt and answer, do not fit into the context.
ApiError context_length_exceeded(std::string_view param, std::string_view message);
/// 404: no such model; the message names the models that are served.
ApiError model_not_found(std::string_view model, std::span<const std::string> served);
/// The message of a request for which there is no room among the held requests.
inline constexpr const char* kNoRoom =
    "the server holds as many bytes of requests as it may; try again later";
/// The answer to a request that ended by an exception: an ApiError itself, 503 if memory ran out, else 500.
ApiError failure(const std::exception& error);

}  // namespace minfer
