#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "models/chat/answer/delta_writer.h"
#include "models/chat/answer/values/tool_types.h"

namespace minfer::answer {

/// Names and headers of calls that are longer are none.
inline constexpr size_t kMaxNameBytes = 256;

/// What readers of calls work with. Both outlive them.
struct CallContext {
  DeltaWriter& out;
  const ToolTypes& tools;
};

/// Reads one region of calls: what stands behind the marker that opened it (CallOpening). Bytes come one by one, so the pieces in
/// which an answer arrives cannot matter.
class CallReader {
 public:
  enum class Step : uint8_t {
    more,    ///< the region goes on
    done,    ///< the byte ended it
    ended,   ///< it ended before unread() and the byte, which is not taken
    failed,  ///< the byte cannot stand here and is not taken: problem() says why
  };

  explicit CallReader(const CallContext& context) : out_(context.out), tools_(context.tools) {}
  virtual ~CallReader() = default;
  virtual Step push(char c) = 0;
  /// Nothing of a call is missing if the answer ends here.
  virtual bool may_end() const = 0;

  /// Bytes of a text under way that wait for what follows.
  virtual std::string_view held() const { return {}; }

  const std::string& unread() const { return unread_; }
  const std::string& problem() const { return problem_; }

 protected:
  Step fail_at(std::string_view expected, char found);
  Step end_before(std::string_view unread);

  DeltaWriter& out_;
  const ToolTypes& tools_;

 private:
  std::string unread_;
  std::string problem_;
};

/// How calls in JSON are written: objects with "name" and "arguments" (or "parameters"), `[a, b]`, `a; b` or one alone.
struct JsonCallSyntax {
  std::string_view close = {};  ///< behind the calls. Empty: nothing
  /// No marker says that this is a call: it is one if it has arguments, of a function that the request has (when it says which).
  bool is_bare = false;
  bool is_list = false;  ///< the marker holds the list's opening bracket
};

/// How calls are written that are a name and an object behind it.
struct NamedCallSyntax {
  std::string_view call_open = {};   ///< in front of each name. Empty: nothing
  std::string_view separator = {};   ///< between name and object, or between a kind and the name
  std::string_view call_close = {};  ///< behind each object. Empty: nothing
  std::string_view close = {};       ///< behind all calls. Empty: the first call is the last
  /// The object is no JSON: keys are bare words, and this stands around texts.
  std::string_view quote = {};
  bool may_be_list = false;  ///< `[` in place of the name: a list of calls in JSON
};

/// How calls are written that have a tag around each parameter:
/// `<name_open>NAME<name_close> {<key_open>KEY<key_close> <value_open>VALUE<value_close>} <call_close> <close>`.
struct TaggedCallSyntax {
  std::string_view name_open = {};   ///< empty: the name comes first of all
  std::string_view name_close = {};  ///< empty: the name is a line, or ends with the next tag
  std::string_view key_open = {};
  std::string_view key_close = {};
  std::string_view value_open = {};  ///< empty: the value is right behind key_close
  std::string_view value_close = {};
  std::string_view call_close = {};  ///< empty: `close` is
  std::string_view close = {};
  bool has_line_ends = false;     ///< one line end around a value belongs to the tags
  bool begins_with_name = false;  ///< the marker in front of the region was name_open
};

/// How calls are written in Python: `[f(a=1), g()]`, or one behind the other.
struct PythonicCallSyntax {
  std::string_view close = {};  ///< behind the calls. Empty: nothing
  bool needs_list = false;      ///< only a list holds calls
  /// No marker says that these are calls: they are if the request has such functions (when it says which).
  bool is_bare = false;
};

std::unique_ptr<CallReader> make_call_reader(const JsonCallSyntax& syntax, const CallContext& context);
std::unique_ptr<CallReader> make_call_reader(const NamedCallSyntax& syntax, const CallContext& context);
std::unique_ptr<CallReader> make_call_reader(const TaggedCallSyntax& syntax, const CallContext& context);
std::unique_ptr<CallReader> make_call_reader(const PythonicCallSyntax& syntax, const CallContext& context);

}  // namespace minfer::answer
