#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "kernels/base/error_types.h"

namespace minfer {

/// A request that is answered with OpenAI's error object instead of a result. The message
/// is for the client: it names the field, the expected value and the value found.
class ApiError : public Error {
 public:
  /// `status`: of HTTP. `type`: "invalid_request_error", "authentication_error", "rate_limit_error",
  /// "server_error". Empty `param` (the field at fault) and `code` become null.
  ApiError(int status, std::string type, const std::string& message, std::string param = {},
           std::string code = {});

  int status() const { return status_; }
  const std::string& type() const { return type_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  int status_;
  std::string type_;
  std::string param_;
  std::string code_;
};

/// {"error":{"message":...,"type":...,"param":...,"code":...}}, valid UTF-8 whatever the message holds.
std::string error_json(const ApiError& error);

/// 400: a body or field that cannot be used. `param` is empty where no single field is at fault.
ApiError bad_request(std::string_view param, std::string_view message);
/// 400: a field that no endpoint of this kind knows, in the words of OpenAI's server.
ApiError unknown_field(std::string_view param);
/// 400: a field, or a value of it, that OpenAI's server knows and this one does not.
ApiError unsupported(std::string_view param, std::string_view message);
/// 400: prompt, or prompt and answer, do not fit into the context.
ApiError context_length_exceeded(std::string_view param, std::string_view message);
/// 401.
ApiError invalid_api_key(std::string_view message);
/// 404: no such model; the message names the models that are served.
ApiError model_not_found(std::string_view model, std::span<const std::string> served);
/// 404: no such route or object.
ApiError not_found(std::string_view message);
/// 405.
ApiError method_not_allowed(std::string_view message);
/// 413: a body or a list larger than the server takes.
ApiError too_large(std::string_view message);
/// 429: the queue is full.
ApiError overloaded(std::string_view message);
/// 500.
ApiError server_error(std::string_view message);
/// 503: shutting down, or the engine has stopped.
ApiError unavailable(std::string_view message);
/// The message of a request for which there is no room among the held requests.
inline constexpr std::string_view kNoRoom =
    "the server holds as many bytes of requests as it may; try again later";
/// The answer to a request that ended by an exception: an ApiError itself, 503 if memory ran out, else 500.
ApiError failure(const std::exception& error);

}  // namespace minfer
