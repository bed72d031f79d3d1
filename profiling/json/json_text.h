#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace minfer {

/// Appends JSON to a string, at a few hundred MB/s. It writes the commas; the caller makes keys and brackets match.
class JsonText {
 public:
  explicit JsonText(std::string& out) : out_(out) {}

  /// '{' or '['
  JsonText& open(char bracket) { return literal({&bracket, 1}); }
  /// '}' or ']'
  JsonText& close(char bracket) {
    out_ += bracket;
    return *this;
  }
  JsonText& key(std::string_view name);
  JsonText& value(std::string_view text);
  /// An integer or a bool. A template, since a pointer to text would convert to bool.
  template <std::integral Integer>
  JsonText& value(Integer number) {
    if constexpr (std::same_as<Integer, bool>) {
      return literal(number ? "true" : "false");
    } else {
      std::array<char, 24> digits;
      return literal({digits.data(), std::to_chars(digits.begin(), digits.end(), number).ptr});
    }
  }
  /// Fixed notation, at most `decimals` digits after the point, without trailing zeros. JSON has no infinity or NaN, so these become 0.
  JsonText& value(double number, int decimals = 3);
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
