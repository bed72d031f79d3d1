#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace minfer {

/// The one argument of the function that the model is shown for a custom tool.
inline constexpr const char* kCustomInput = "input";

/// Reads the text that a call of a custom tool brings out of the call's arguments, {"input": TEXT}, while they come. What stands behind TEXT
/// says nothing. Arguments that begin in another way are the text themselves, and so is an escape that JSON does not have. One thread.
class CustomInput {
 public:
  CustomInput();
  CustomInput(CustomInput&&) noexcept;
  CustomInput& operator=(CustomInput&&) noexcept;
  ~CustomInput();

  /// More of the arguments, cut anywhere; gives more of the text, in whole characters.
  std::string push(std::string_view arguments);
  /// The rest of the text. `whole`: the call has ended; else it was cut, and a beginning such as {"in gives no text.
  std::string finish(bool whole);

 private:
  struct Decoder;
  enum class State : uint8_t {
    opening,  ///< what comes may still be {"input": "
    text,
    behind,  ///< the text has ended
    raw,     ///< the arguments are the text
  };

  void take(char c);
  void take_opening(char c);
  void take_text(char c);

  State state_ = State::opening;
  size_t num_matched_ = 0;  ///< bytes of the opening
  std::string held_;        ///< bytes of the opening, or of an escape, that gave no text yet
  std::unique_ptr<Decoder> decoder_;
  std::string text_;  ///< not given out yet
};

/// All of it at once.
std::string custom_input(std::string_view arguments, bool whole);

}  // namespace minfer
