#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profiling/json/json_text.h"
#include "server/answer/answer_reader.h"
#include "server/answer/answer_writer.h"
#include "server/answer/id_source.h"
#include "server/answer/usage.h"

namespace minfer {

/// The object of one response of /v1/responses and its items, and what is kept of it. `request` and what the context points to
/// outlive it. One thread.
class ResponsesBody {
 public:
  ResponsesBody(const CompletionRequest& request, ResponseIdentity identity, const ApiContext& context);

  /// The response while it is on its way, with what it has so far.
  std::string unfinished(const std::vector<AnswerPart>& parts);
  std::string failed(const std::vector<AnswerPart>& parts, const ApiError& error);
  /// The response at its end, which is kept if the request wants that.
  std::string finished(const std::vector<AnswerPart>& parts, AnswerEnd end, const Usage& usage);

  /// The item of a part: as it begins, or with all of its text.
  void write_item(JsonText& json, const std::vector<AnswerPart>& parts, size_t index, bool begins);
  /// The only part of the content of an item that is no call.
  void write_content(JsonText& json, const AnswerPart& part, std::string_view text) const;
  /// Whether a part is a call of a custom tool, which brings a text instead of arguments.
  bool is_custom_call(const AnswerPart& part) const;
  /// Of a part that is a call: as the client knows it, without its namespace.
  const std::string& function_name(const AnswerPart& part) const;
  const std::string& item_id(const std::vector<AnswerPart>& parts, size_t index);

 private:
  std::string_view item_prefix(const AnswerPart& part) const;
  std::string text(std::string_view status, const std::vector<AnswerPart>& parts, const std::string& error,
                   const std::string& incomplete_details, const Usage* usage);
  void keep(const std::string& body, const std::vector<AnswerPart>& parts) const;

  const CompletionRequest& request_;
  const ResponseIdentity identity_;
  ResponseStore* const store_;
  IdSource ids_;
  std::vector<std::string> item_ids_;
};

}  // namespace minfer
