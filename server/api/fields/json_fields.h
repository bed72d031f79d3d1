#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/api/fields/api_error.h"

namespace minfer {

/// The JSON of requests and answers, as sources name it: members keep their order.
using Json = nlohmann::ordered_json;

// Parsing a body takes memory and time in proportion to its size, whatever it holds. The limits guard against
// deep nesting, members that are looked up one by one, and values that are larger parsed than written.
inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonMembers = 1024;     ///< of one object
inline constexpr size_t kMaxJsonValues = 1u << 20;  ///< of a whole body

/// Parses the JSON object in a request's body. Throws ApiError (400) for anything else: no JSON (naming line
/// and column), invalid UTF-8, numbers beyond a double, a member named twice, more than the limits above.
nlohmann::ordered_json parse_json_body(std::string_view body);

/// The JSON text of a value; bytes that are no UTF-8 become U+FFFD.
std::string dump_json(const nlohmann::ordered_json& value);

/// A value as a message may show it: about 60 characters at most.
std::string describe(const nlohmann::ordered_json& value);

/// The members of a request's body, at any depth, that no reader asked for or that the chat template has no use for. They
/// are ignored and their names kept for a header of the answer and for the log. A strict server refuses them instead.
class UnknownFields {
 public:
  explicit UnknownFields(bool refuses) : refuses_(refuses) {}

  bool refuses() const { return refuses_; }
  /// Adds member `name` of the object `object_path` (empty: the body). A strict server: throws ApiError (400) with its full name.
  void add(std::string_view object_path, std::string_view name);
  /// Adds a known field, by its full name, that had no effect on the prompt. It is
  /// named as the others are but never refused: clients send such fields to all models.
  void add_unused(std::string_view name);

  /// Each name once, in the order found: "a", "messages[].b". All names are short plain
  /// ASCII without commas, whatever the client sent; after the 16th, the list ends in "...".
  const std::vector<std::string>& names() const { return names_; }

 private:
  void keep(std::string text);

  bool refuses_;
  std::vector<std::string> names_;
};

/// Reads the members of a JSON object, each once, by name, type and range; then reports the members that nobody
/// asked for. Every failure is an ApiError (400) with the member's full name ("messages[0].role") as `param`.
///
/// null means absent. A number with a fraction of zero (1.0) counts as an integer: JSON has one number
/// type, and some languages write whole numbers so. A boolean is not a number, nor is a number in quotes.
class JsonFields {
 public:
  /// `object` and `unknown` outlive the reader. `path` is the object's own name, empty for the body. Throws if
  /// it is no object.
  JsonFields(const nlohmann::ordered_json& object, std::string path, UnknownFields& unknown);
  JsonFields(const JsonFields&) = delete;
  JsonFields& operator=(const JsonFields&) = delete;

  /// The member whatever its type, or null.
  const nlohmann::ordered_json* any(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  std::optional<double> number(std::string_view name, double low, double high);
  std::optional<std::string> text(std::string_view name);
  const nlohmann::ordered_json* array(std::string_view name);
  const nlohmann::ordered_json* object(std::string_view name);
  /// The reader of a member that is an object; this one's report_unknown() reports its unknown members too. Null: there is none.
  JsonFields* inner(std::string_view name);
  /// The same, for required members. `expected` says what is missing.
  const nlohmann::ordered_json& required(std::string_view name, std::string_view expected);
  std::string required_text(std::string_view name);
  /// One of `values`.
  std::string required_choice(std::string_view name, std::initializer_list<std::string_view> values);
  const nlohmann::ordered_json& required_array(std::string_view name);
  JsonFields& required_inner(std::string_view name, std::string_view expected = "an object");

  /// Calls `read` with the reader of each object of a member that is a list, then reports the object's unknown members. Absent: none.
  void each(std::string_view name, const std::function<void(JsonFields& object)>& read);
  /// The same for a required list of at least one object; `kind` names one ("message").
  void each_required(std::string_view name, std::string_view kind,
                     const std::function<void(JsonFields& object)>& read);
  /// Takes members that have no effect here as asked for.
  void ignore(std::initializer_list<std::string_view> names);
  /// Refuses those of these members that ask for something: all values but null, false, "" and [] do.
  void refuse(std::initializer_list<std::string_view> names);

  /// Adds the members that were not asked for to unknown(), which may throw. null means absent, except where unknown members are refused.
  void report_unknown() const;
  /// Takes all members as asked for.
  void ignore_rest() { asked_.assign(asked_.size(), true); }
  /// For readers of objects within this one.
  UnknownFields& unknown() const { return unknown_; }

  /// Full name of the object, and of a member.
  const std::string& path() const { return path_; }
  std::string path(std::string_view name) const;
  /// `message` about a member: "NAME: MESSAGE".
  template <class... Args>
  ApiError error(std::string_view name, fmt::format_string<Args...> message, Args&&... args) const {
    return bad_request(path(name), message, std::forward<Args>(args)...);
  }

 private:
  const nlohmann::ordered_json& object_;
  std::string path_;
  UnknownFields& unknown_;
  std::vector<bool> asked_;  ///< by place of the member
  std::list<JsonFields> inner_;
};

/// False for values that ask for nothing: null, false, "" and [].
bool is_on(const nlohmann::ordered_json* value);

// One value by itself; `path` is its full name.
int64_t read_integer(const nlohmann::ordered_json& value, const std::string& path, int64_t low, int64_t high);
double read_number(const nlohmann::ordered_json& value, const std::string& path, double low, double high);
const std::string& read_text(const nlohmann::ordered_json& value, const std::string& path);

/// "PATH: FOUND, expected EXPECTED".
ApiError wrong_value(const std::string& path, const nlohmann::ordered_json& found, std::string_view expected);

}  // namespace minfer
