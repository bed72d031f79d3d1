#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace minfer {

/// Appends JSON to a string, at a few hundred MB/s. It writes the commas; the caller makes keys and brackets match.
class JsonText {
 public:
  explicit JsonText(std::string& out) : out_(out) {}

  JsonText& open(char bracket);   ///< '{' or '['
  JsonText& close(char bracket);  ///< '}' or ']'
  JsonText& key(std::string_view name);
  JsonText& value(std::string_view text);
  JsonText& value(int64_t number);
  JsonText& value(uint64_t number);
  JsonText& value(int32_t number) { return value(int64_t{number}); }
  JsonText& value(uint32_t number) { return value(uint64_t{number}); }
  /// Fixed notation, at most `decimals` digits after the point, without trailing zeros. JSON has no infinity or NaN, so these become 0.
  JsonText& value(double number, int decimals = 3);
  /// Accepts only bool, since a pointer to text would convert to bool.
  template <std::same_as<bool> Bool>
  JsonText& value(Bool truth) {
    return literal(truth ? "true" : "false");
  }
  JsonText& null() { return literal("null"); }

  template <class T>
  JsonText& field(std::string_view name, const T& content) {
    return key(name).value(content);
  }
  JsonText& field(std::string_view name, double number, int decimals) {
    return key(name).value(number, decimals);
  }

 private:
  JsonText& literal(std::string_view text);
  void separate();
  std::string& out_;
};

}  // namespace minfer
