#include "server/api/fields/json_body.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/gguf/printable.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

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
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override {
    check_names(open_.back()->get_ref<const Json::object_t&>());
    return close();
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    std::string_view reason = error.what();
    reason.remove_prefix(std::min(reason.find("] "), reason.size() - 2) + 2);  // the library's error number
    throw bad_request({}, fmt::format("The body is not valid JSON: {}", printable(reason, 200)));
  }

  Json take() { return std::move(root_); }

 private:
  Json* add(Json value) {
    if (++num_values_ > kMaxJsonValues) {
      throw bad_request({}, fmt::format("The body has more than {} JSON values", kMaxJsonValues));
    }
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
    if (members.size() == kMaxJsonMembers) {
      throw bad_request({}, fmt::format("The body has an object of more than {} members", kMaxJsonMembers));
    }
    members.push_back({std::move(key_), std::move(value)});
    return &members.back().second;
  }

  bool open(Json value) {
    if (open_.size() == kMaxJsonDepth) {
      throw bad_request({}, fmt::format("The body is nested deeper than {} levels", kMaxJsonDepth));
    }
    open_.push_back(add(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
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
      throw bad_request(printable(*twice),
                        fmt::format("The body has an object with two members \"{}\"", printable(*twice)));
    }
  }

  Json root_;
  std::vector<Json*> open_;  ///< the values around the next one; none but the last grows
  std::string key_;
  size_t num_values_ = 0;
};

}  // namespace

Json parse_json_body(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw bad_request({}, "The body is empty, expected a JSON object");
  }
  BodyBuilder builder;
  Json::sax_parse(body, &builder);
  Json root = builder.take();
  if (!root.is_object()) {
    throw bad_request({}, fmt::format("The body is {}, expected a JSON object", describe(root)));
  }
  return root;
}

std::string describe(const Json& value) {
  constexpr size_t kMaxBytes = 60;
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  if (value.is_string()) {
    return '"' + printable(value.get_ref<const std::string&>(), kMaxBytes) + '"';
  }
  return value.dump();
}

}  // namespace minfer
