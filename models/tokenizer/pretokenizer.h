#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace minfer {

/// What a pre-tokeniser's name implies besides where words end.
struct PretokenizerTraits {
  bool add_bos = false;        ///< BOS is added unless the file says otherwise
  bool ignore_merges = false;  ///< a word that is a token is that token, whatever the merges would make of it
  bool nfc = false;            ///< text is brought to Unicode normal form C first
};

/// Throws FileError naming the known ones if `name` is not a value of tokenizer.ggml.pre that this program knows.
PretokenizerTraits pretokenizer_traits(std::string_view name);

/// Cuts text into the words within which byte-level BPE merges: a sequence of regular expressions, each applied to what the ones before it
/// left, both matches and the gaps between them becoming words. Immutable: any thread may use it.
class Pretokenizer {
 public:
  /// Throws FileError as pretokenizer_traits does.
  explicit Pretokenizer(std::string_view name);
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  /// Words of `text` in order; joined they are `text`. Bytes that are not UTF-8 are words apart. Time grows linearly with the text; where a
  /// match would need more than the limits on its stack and steps, the rest stays one word.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

/// One family of pre-tokenisers.
struct PretokenizerRule {
  std::string_view names;                      ///< values of tokenizer.ggml.pre, separated by spaces
  std::span<const std::string_view> patterns;  ///< PCRE2 expressions, applied in order
  PretokenizerTraits traits;
};

std::span<const PretokenizerRule> pretokenizer_rules();

}  // namespace minfer
