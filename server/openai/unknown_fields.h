#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// The members of a request's body, at any depth, that no reader asked for or the chat template has no use for. They are ignored and their names
/// kept, for a header of the answer and for the log; or, where the server is strict, refused.
class UnknownFields {
 public:
  explicit UnknownFields(bool refuses) : refuses_(refuses) {}

  bool refuses() const { return refuses_; }
  /// Member `name` of the object `object_path` (empty: the body itself). Throws ApiError (400) with its full
  /// name if such are refused.
  void add(std::string_view object_path, std::string_view name);
  /// A known field, by its full name, that had no effect on the prompt. Named as the others are, never refused: clients send such
  /// to all models.
  void add_unused(std::string_view name);

  /// Each name once, in the order found: "a", "messages[].b". All of them are short, plain ASCII and without
  /// commas, whatever the client sent; behind the 16th they end in "...".
  const std::vector<std::string>& names() const { return names_; }

 private:
  void keep(std::string text);

  bool refuses_;
  std::vector<std::string> names_;
};

}  // namespace minfer
