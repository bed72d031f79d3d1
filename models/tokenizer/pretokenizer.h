#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;  // pcre2_code

namespace minfer {

/// The properties that a pre-tokeniser's name implies, other than the word boundaries.
struct PretokenizerTraits {
  bool add_bos = false;        ///< BOS is added unless the file says otherwise
  bool ignore_merges = false;  ///< a word that is a token becomes that token, regardless of merges
  bool nfc = false;            ///< text is converted to Unicode normal form C first
};

/// Throws FileError naming the known values if `name` is not a known value of tokenizer.ggml.pre.
PretokenizerTraits pretokenizer_traits(std::string_view name);

/// Cuts text into words; byte-level BPE merges only within a word. It applies a sequence of regular expressions, each to the pieces that
/// the earlier ones left. Both matches and the gaps between them become words. Immutable: any thread may use it.
class Pretokenizer {
 public:
  /// Throws FileError as pretokenizer_traits does.
  explicit Pretokenizer(std::string_view name);

  /// The words of `text` in order; joined, they are `text`. Bytes that are not UTF-8 are words of their own. Time grows linearly with the
  /// text. If a match would exceed the limits on its stack and steps, the rest stays one word.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  std::vector<std::shared_ptr<const pcre2_real_code_8>> codes_;
};

/// One family of pre-tokenisers.
struct PretokenizerRule {
  std::string_view names;                      ///< values of tokenizer.ggml.pre, separated by spaces
  std::span<const std::string_view> patterns;  ///< PCRE2 expressions, applied in order
  PretokenizerTraits traits;
};

std::span<const PretokenizerRule> pretokenizer_rules();

}  // namespace minfer
