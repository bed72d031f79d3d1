#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// Finds the first of several stop strings in text that comes in pieces, and lets through only text that can
/// no longer become part of one. Each byte costs O(number of stop strings), amortised, however often they
/// nearly match (Knuth, Morris, Pratt 1977).
class StopMatcher {
 public:
  /// No string is empty.
  explicit StopMatcher(std::vector<std::string> stops);

  struct Result {
    std::string text;          ///< now certain not to belong to a stop string
    std::string_view matched;  ///< the stop string that was completed; empty: none. Points into the matcher
  };

  /// Takes the next piece. Stop strings that end in a piece that `may_stop` not are text like any other;
  /// later pieces may complete one that begins there. Once a stop string was matched, further text is
  /// ignored.
  Result push(std::string_view piece, bool may_stop = true);
  /// The end of the text: what was held back.
  std::string finish();

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  ///< border[i]: longest proper prefix of text[0..i] that is also its suffix
    size_t matched = 0;          ///< bytes of the pattern that the text so far ends with
  };

  std::vector<Pattern> patterns_;
  std::string held_;
  bool done_ = false;
};

}  // namespace minfer
