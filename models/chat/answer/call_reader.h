#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "models/chat/answer/chat_answer_parser.h"
#include "models/chat/answer/values/json_text.h"
#include "models/chat/answer/values/tool_types.h"

namespace minfer::answers {

/// The longest name or header of a call; a longer text is no call.
inline constexpr size_t kMaxNameBytes = 256;

/// The output and the tools of readers of calls. Both must outlive the readers.
struct CallContext {
  DeltaWriter& out;
  const ToolTypes& tools;
};

/// Reads one region of calls: the text behind its opening marker (CallOpening). Bytes come one by one, so the division of
/// an answer into pieces cannot matter.
class CallReader {
 public:
  /// `ended`: the region ended before unread() and the byte. `failed`: problem() says why.
  using Step = ReadStep;

  explicit CallReader(const CallContext& context) : out_(context.out), tools_(context.tools) {}
  virtual ~CallReader() = default;
  virtual Step push(char c) = 0;
  /// True if the answer may end here, with no call incomplete.
  virtual bool may_end() const = 0;

  /// Bytes of the current text that wait for the next bytes.
  virtual std::string_view held() const { return {}; }

  const std::string& unread() const { return unread_; }
  const std::string& problem() const { return problem_; }

 protected:
  Step fail_at(std::string_view expected, char found);
  Step end_before(std::string_view unread);
  /// Writes the key of an argument; ends the arguments and the call.
  void give_key(std::string_view key);
  void end_call();

  DeltaWriter& out_;
  const ToolTypes& tools_;

 private:
  bool has_key_ = false;
  std::string unread_;
  std::string problem_;
};

/// The syntax of calls in JSON: objects with "name" and "arguments" (or "parameters"), as `[a, b]`, as `a; b` or single.
struct JsonCallSyntax {
  std::string_view close = {};  ///< behind the calls. Empty: nothing
  /// There is no marker. The object is a call if it has arguments, and if the request has its function (or no known tools).
  bool is_bare = false;
  bool is_list = false;  ///< the marker holds the list's opening bracket
};

/// The syntax of calls with a name and an object behind it.
struct NamedCallSyntax {
  std::string_view call_open = {};   ///< in front of each name. Empty: nothing
  std::string_view separator = {};   ///< between name and object, or between a kind and the name
  std::string_view call_close = {};  ///< behind each object. Empty: nothing
  std::string_view close = {};       ///< behind all calls. Empty: the first call is the last
  /// Not empty: the object is not JSON. Keys are bare words, and this quote is around texts.
  std::string_view quote = {};
  bool may_be_list = false;  ///< `[` in place of the name: a list of calls in JSON
};

/// The syntax of calls with a tag around each parameter:
/// `<name_open>NAME<name_close> {<key_open>KEY<key_close> <value_open>VALUE<value_close>} <call_close> <close>`.
struct TaggedCallSyntax {
  std::string_view name_open = {};   ///< empty: the name comes first
  std::string_view name_close = {};  ///< empty: the name is a line, or ends with the next tag
  std::string_view key_open = {};
  std::string_view key_close = {};
  std::string_view value_open = {};  ///< empty: the value is right behind key_close
  std::string_view value_close = {};
  std::string_view call_close = {};  ///< empty: `close` ends the call
  std::string_view close = {};
  bool has_line_ends = false;     ///< one line end around a value belongs to the tags
  bool begins_with_name = false;  ///< the marker in front of the region was name_open
};

/// The syntax of calls in Python: `[f(a=1), g()]`, or one behind the other.
struct PythonicCallSyntax {
  std::string_view close = {};  ///< behind the calls. Empty: nothing
  bool needs_list = false;      ///< only a list holds calls
  /// There is no marker. These are calls if the request has the functions (or no known tools).
  bool is_bare = false;
};

std::unique_ptr<CallReader> make_call_reader(const JsonCallSyntax& syntax, const CallContext& context);
std::unique_ptr<CallReader> make_call_reader(const NamedCallSyntax& syntax, const CallContext& context);
std::unique_ptr<CallReader> make_call_reader(const TaggedCallSyntax& syntax, const CallContext& context);
std::unique_ptr<CallReader> make_call_reader(const PythonicCallSyntax& syntax, const CallContext& context);

}  // namespace minfer::answers
