#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "models/chat/answer/values/json_text.h"

namespace minfer {

/// The one argument of the function that represents a custom tool to the model.
inline constexpr const char* kCustomInput = "input";

/// Extracts the text of a custom tool's call from the call's arguments, {"input": TEXT}, while they stream. Ignores anything behind TEXT.
/// Arguments with another beginning are the text themselves, and so is an escape that JSON does not have. One thread.
class CustomInput {
 public:
  /// Takes more of the arguments, cut anywhere; returns more of the text, in whole characters.
  std::string push(std::string_view arguments);
  /// Returns the rest of the text. `whole`: the call has ended; else it was cut, and a beginning such as {"in gives no text.
  std::string finish(bool whole);

 private:
  enum class State : uint8_t {
    opening,  ///< the arguments may still begin with {"input": "
    text,
    behind,  ///< the text has ended
    raw,     ///< the arguments are the text
  };

  void take(char c);
  void take_opening(char c);
  void take_text(char c);

  State state_ = State::opening;
  size_t num_matched_ = 0;  ///< bytes of the opening
  std::string held_;        ///< bytes of the opening or an escape that gave no text yet
  answers::JsonStringDecoder decoder_;
  std::string text_;  ///< not given out yet
};

}  // namespace minfer
