#include "server/api/fields/json_fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/gguf/printable.h"

namespace minfer {
namespace {

/// Builds the value from the parser's events, within the limits. Members are appended without
/// a look at earlier ones: ordered_json's own insertion would compare each with all others.
class BodyBuilder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override { return add(value) != nullptr; }
  bool string(string_t& value) override { return add(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return false; }  // not in JSON text
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool end_object() override {
    check_names(open_.back()->get_ref<const Json::object_t&>());
    return end_array();
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    std::string_view reason = error.what();
    reason.remove_prefix(std::min(reason.find("] "), reason.size() - 2) + 2);  // the library's error number
    throw bad_request({}, "The body is not valid JSON: {}", printable(reason, 200));
  }

  Json take() { return std::move(root_); }

 private:
  Json* add(Json value) {
    if (++num_values_ > kMaxJsonValues)
      throw bad_request({}, "The body has more than {} JSON values", kMaxJsonValues);
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      auto& items = parent.get_ref<Json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    auto& members = parent.get_ref<Json::object_t&>();
    if (members.size() == kMaxJsonMembers)
      throw bad_request({}, "The body has an object of more than {} members", kMaxJsonMembers);
    members.push_back({std::move(key_), std::move(value)});
    return &members.back().second;
  }

  bool open(Json value) {
    if (open_.size() == kMaxJsonDepth)
      throw bad_request({}, "The body is nested deeper than {} levels", kMaxJsonDepth);
    open_.push_back(add(std::move(value)));
    return true;
  }

  static void check_names(const Json::object_t& members) {
    std::vector<std::string_view> names;
    names.reserve(members.size());
    for (const auto& [name, value] : members)
      names.push_back(name);
    std::ranges::sort(names);
    const auto twice = std::ranges::adjacent_find(names);
    if (twice != names.end()) {
      const std::string name = printable(*twice);
      throw ApiError(400, fmt::format("The body has an object with two members \"{}\"", name), name);
    }
  }

  Json root_;
  std::vector<Json*> open_;  ///< the values around the next one; none but the last grows
  std::string key_;
  size_t num_values_ = 0;
};

/// Below this bound, a whole number written with a point or an exponent is exact in a double.
constexpr double kExactIntegers = 9007199254740992.0;

/// The JSON number as a whole number, if it is one that int64_t holds.
std::optional<int64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (std::abs(number) >= kExactIntegers || number != std::trunc(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

constexpr size_t kMostNames = 16;
constexpr size_t kMostBytes = 64;  ///< of a name
constexpr const char* kAndMore = "...";

std::string full_name(std::string_view object_path, std::string_view name) {
  return object_path.empty() ? std::string(name) : fmt::format("{}.{}", object_path, name);
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-.:/@$").find(c) != std::string_view::npos;
}

/// "messages[12].b" -> "messages[].b": the same field of many messages is named once. The readers
/// write the indices in brackets; brackets in a member's own name count as any other odd character.
std::string shown(std::string_view object_path, std::string_view name) {
  std::string text;
  for (const char c : object_path) {
    const bool in_brackets = !text.empty() && text.back() == '[';
    if (!in_brackets || c == ']') text += c;
  }
  if (!text.empty()) text += '.';
  for (const char c : name.substr(0, kMostBytes + 1))
    text += is_plain(c) ? c : '?';
  if (name.empty()) text += "\"\"";
  if (text.size() > kMostBytes) text.replace(kMostBytes, std::string::npos, kAndMore);
  return text;
}

}  // namespace

Json parse_json_body(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw bad_request({}, "The body is empty, expected a JSON object");
  BodyBuilder builder;
  Json::sax_parse(body, &builder);
  Json root = builder.take();
  if (!root.is_object()) throw bad_request({}, "The body is {}, expected a JSON object", describe(root));
  return root;
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string describe(const Json& value) {
  constexpr size_t kMaxBytes = 60;
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  if (value.is_string()) return '"' + printable(value.get_ref<const std::string&>(), kMaxBytes) + '"';
  return value.dump();
}

ApiError wrong_value(const std::string& path, const Json& found, std::string_view expected) {
  return bad_request(path, "{}, expected {}", describe(found), expected);
}

int64_t read_integer(const Json& value, const std::string& path, int64_t low, int64_t high) {
  const std::optional<int64_t> number = whole_number(value);
  if (!number || *number < low || *number > high)
    throw wrong_value(path, value, fmt::format("an integer from {} to {}", low, high));
  return *number;
}

double read_number(const Json& value, const std::string& path, double low, double high) {
  const double number = value.is_number() ? value.get<double>() : NAN;
  if (!(number >= low && number <= high))
    throw wrong_value(path, value, fmt::format("a number from {} to {}", low, high));
  return number;
}

const std::string& read_text(const Json& value, const std::string& path) {
  if (!value.is_string()) throw wrong_value(path, value, "a string");
  return value.get_ref<const std::string&>();
}

JsonFields::JsonFields(const Json& object, std::string path, UnknownFields& unknown)
    : object_(object), path_(std::move(path)), unknown_(unknown) {
  if (!object.is_object()) throw wrong_value(path_, object, "an object");
  asked_.resize(object.size());
}

const Json* JsonFields::any(std::string_view name) {
  size_t place = 0;
  for (const auto& [member, value] : object_.get_ref<const Json::object_t&>()) {
    if (member == name) {
      asked_[place] = true;
      return value.is_null() ? nullptr : &value;
    }
    ++place;
  }
  return nullptr;
}

std::optional<bool> JsonFields::boolean(std::string_view name) {
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) throw wrong_value(path(name), *value, "true or false");
  return value->get<bool>();
}

std::optional<int64_t> JsonFields::integer(std::string_view name, int64_t low, int64_t high) {
  const Json* value = any(name);
  return value == nullptr ? std::nullopt : std::optional(read_integer(*value, path(name), low, high));
}

std::optional<double> JsonFields::number(std::string_view name, double low, double high) {
  const Json* value = any(name);
  return value == nullptr ? std::nullopt : std::optional(read_number(*value, path(name), low, high));
}

std::optional<std::string> JsonFields::text(std::string_view name) {
  const Json* value = any(name);
  return value == nullptr ? std::nullopt : std::optional(read_text(*value, path(name)));
}

const Json* JsonFields::array(std::string_view name) {
  const Json* value = any(name);
  if (value != nullptr && !value->is_array()) throw wrong_value(path(name), *value, "an array");
  return value;
}

const Json* JsonFields::object(std::string_view name) {
  const Json* value = any(name);
  if (value != nullptr && !value->is_object()) throw wrong_value(path(name), *value, "an object");
  return value;
}

JsonFields* JsonFields::inner(std::string_view name) {
  const Json* value = object(name);
  if (value == nullptr) return nullptr;
  const auto known = std::ranges::find(inner_, value, [](const JsonFields& each) { return &each.object_; });
  return known != inner_.end() ? &*known : &inner_.emplace_back(*value, path(name), unknown_);
}

const Json& JsonFields::required(std::string_view name, std::string_view expected) {
  const Json* value = any(name);
  if (value == nullptr) throw error(name, "missing, expected {}", expected);
  return *value;
}

std::string JsonFields::required_text(std::string_view name) {
  return read_text(required(name, "a string"), path(name));
}

std::string JsonFields::required_choice(std::string_view name,
                                        std::initializer_list<std::string_view> values) {
  std::string text = required_text(name);
  if (std::ranges::find(values, text) != values.end()) return text;
  const std::span<const std::string_view> but_last(values.begin(), values.size() - 1);
  throw wrong_value(path(name), text,
                    fmt::format("{} or {}", fmt::join(but_last, ", "), *(values.end() - 1)));
}

const Json& JsonFields::required_array(std::string_view name) {
  required(name, "an array");
  return *array(name);
}

JsonFields& JsonFields::required_inner(std::string_view name, std::string_view expected) {
  required(name, expected);
  return *inner(name);
}

void JsonFields::each(std::string_view name, const std::function<void(JsonFields&)>& read) {
  const Json* list = array(name);
  const std::string list_path = path(name);
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    JsonFields object((*list)[i], fmt::format("{}[{}]", list_path, i), unknown_);
    read(object);
    object.report_unknown();
  }
}

void JsonFields::each_required(std::string_view name, std::string_view kind,
                               const std::function<void(JsonFields&)>& read) {
  if (required_array(name).empty()) throw error(name, "empty, expected at least one {}", kind);
  each(name, read);
}

void JsonFields::ignore(std::initializer_list<std::string_view> names) {
  std::ranges::for_each(names, [this](std::string_view name) { any(name); });
}

void JsonFields::refuse(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (is_on(any(name))) throw unsupported(path(name), "not supported by this server");
}

void JsonFields::report_unknown() const {
  std::ranges::for_each(inner_, &JsonFields::report_unknown);
  size_t place = 0;
  for (const auto& [member, value] : object_.get_ref<const Json::object_t&>()) {
    const bool counts = unknown_.refuses() || !value.is_null();
    if (!asked_[place++] && counts) unknown_.add(path_, member);
  }
}

std::string JsonFields::path(std::string_view name) const {
  return full_name(path_, name);
}

bool is_on(const Json* value) {
  return value != nullptr && *value != false && *value != "" && !(value->is_array() && value->empty());
}

void UnknownFields::add(std::string_view object_path, std::string_view name) {
  if (refuses_) {
    const std::string field = full_name(object_path, printable(name));
    throw ApiError(400, "Unrecognized request argument supplied: " + field, field);  // OpenAI's words
  }
  keep(shown(object_path, name));
}

void UnknownFields::add_unused(std::string_view name) {
  const size_t dot = name.find('.');
  keep(dot == std::string_view::npos ? shown({}, name) : shown(name.substr(0, dot), name.substr(dot + 1)));
}

void UnknownFields::keep(std::string text) {
  if (names_.size() > kMostNames) return;
  if (std::ranges::find(names_, text) != names_.end()) return;
  names_.push_back(names_.size() == kMostNames ? kAndMore : std::move(text));
}

}  // namespace minfer
