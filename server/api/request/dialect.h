#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/api/fields/api_error.h"

namespace minfer {

struct ApiContext;
struct CompletionRequest;
struct ResponseIdentity;
class AnswerWriter;
class UnknownFields;

/// An endpoint whose answer needs no engine: JSON, made on a background thread.
struct Endpoint {
  std::string_view method;
  std::string_view path;  ///< with a '/' at its end: everything below it
  /// `text`: the body of a POST, else the path behind `path`. Throws ApiError. Ignored fields go to `unknown`.
  std::string (*answer)(std::string_view text, const ApiContext& context, UnknownFields& unknown);
};

/// One form in which clients ask for completions and are answered. Each has a folder in server/dialects and a row in dialects().
struct Dialect {
  std::string_view path;          ///< of its POST requests
  std::string_view id_prefix;     ///< of its answers' ids
  std::string_view prompt_field;  ///< its requests' name of the prompt
  bool is_chat = true;            ///< its requests are conversations that a chat template renders
  bool guards_ids = false;  ///< a client that knows an answer's id can read it later: ids cannot be guessed
  std::string_view id_header = {};  ///< answers' header with the request's id. Empty: only the server's own
  std::string_view call_prefix = "call_";  ///< begins the ids of calls
  std::string_view options = {};           ///< the member with the fields of sampling; empty: the body
  std::string_view model_tag = {};         ///< may stand behind a model's name
  bool streams = false;                    ///< an answer is streamed unless the request says otherwise
  std::string_view stream_type = "text/event-stream; charset=utf-8";
  std::string_view errors_below = {};  ///< errors of paths that begin so have its form too; empty: `path`
  /// Returns the request that `body` asks for. Throws ApiError: 400 naming the
  /// field, 404 for an unknown model. The only other exception is std::bad_alloc.
  CompletionRequest (*parse)(std::string_view body, const ApiContext& context);
  /// Makes the writer of the answer: make_answer(). `request` and the objects that the context points to outlive it.
  std::unique_ptr<AnswerWriter> (*answer)(const CompletionRequest& request, const ResponseIdentity& identity,
                                          const ApiContext& context, bool streams);
  std::string (*error)(const ApiError& error) = error_json;  ///< the body of an answer that is an error
  /// True if a small body may take long to parse. Never throws. Null: no small body does.
  bool (*takes_long)(std::string_view body, const ApiContext& context) = nullptr;
  std::span<const Endpoint> others = {};  ///< further endpoints of its API
};

/// All dialects that the server speaks: server/dialects/dialects.cpp.
std::span<const Dialect* const> dialects();

}  // namespace minfer
