#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/tokenizer/pretokenizer.h"

#include <algorithm>
#include <string>

#include <pcre2.h>

#include "kernels/base/error.h"
#include "models/gguf/printable.h"
#include "models/tokenizer/utf8.h"

namespace minfer {
namespace {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Code = std::shared_ptr<const pcre2_code>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;

// The JIT's default stack is 32 KiB, which a word of 200,000 letters can overflow. Reserved, not touched.
constexpr size_t kJitStackStart = 32 << 10;
constexpr size_t kJitStackMax = 16 << 20;
constexpr uint32_t kMatchLimit =
    50'000'000;  // steps of one match; a run of 1 MB that ends in a failure needs 1 M
constexpr uint32_t kHeapLimitKib = 64 << 10;  // of the interpreter, where there is no JIT

bool names_rule(const PretokenizerRule& rule, std::string_view name) {
  const bool is_word = name.find(' ') == std::string_view::npos;
  return is_word && fmt::format(" {} ", rule.names).find(fmt::format(" {} ", name)) != std::string::npos;
}

const PretokenizerRule& find_rule(std::string_view name) {
  std::string known;
  for (const PretokenizerRule& rule : pretokenizer_rules()) {
    if (names_rule(rule, name)) return rule;
    known += known.empty() ? "" : " ";
    known += rule.names;
  }
  fail<FileError>("tokenizer.ggml.pre: unknown pre-tokeniser '{}', expected one of: {}", printable(name),
                  known);
}

/// PCRE2's \s also matches U+180E, which lost the property in Unicode 6.3; the tokenisers' engines follow Unicode.
std::string with_unicode_spaces(std::string_view pattern) {
  std::string expanded;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view escape = pattern.substr(i, 2);
    if (escape == R"(\s)" || escape == R"(\S)") {
      expanded += escape == R"(\s)" ? R"(\p{White_Space})" : R"(\P{White_Space})";
      ++i;
    } else {
      const size_t length = pattern[i] == '\\' ? 2 : 1;
      expanded += pattern.substr(i, length);
      i += length - 1;
    }
  }
  return expanded;
}

Code compile(std::string_view pattern) {
  const std::string expanded = with_unicode_spaces(pattern);
  int error = 0;
  size_t offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expanded.data()), expanded.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  if (code == nullptr) fail("pre-tokeniser pattern {}: PCRE2 error {} at offset {}", expanded, error, offset);
  // A machine without the JIT interprets: slower, same matches.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return {code, pcre2_code_free};
}

/// The state that a thread needs to match; made for each text, because the tokeniser is shared.
class Matcher {
 public:
  Matcher()
      : data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)) {
    if (!data_ || !context_) throw std::bad_alloc();
    // Without a stack (no JIT here) PCRE2 uses the default one.
    if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
  }

  /// Appends the matches of `code` in `text` and the gaps between them. `text` is valid UTF-8.
  void split(const Code& code, std::string_view text, std::vector<std::string_view>& words) {
    size_t begin = 0;
    while (begin < text.size()) {
      const int count = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), begin,
                                    PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data_.get(), context_.get());
      if (count < 0) break;  // no further match, or a limit: what is left is one word
      const size_t* offsets = pcre2_get_ovector_pointer(data_.get());
      if (offsets[0] > begin) words.push_back(text.substr(begin, offsets[0] - begin));
      words.push_back(text.substr(offsets[0], offsets[1] - offsets[0]));
      begin = offsets[1];
    }
    if (begin < text.size()) words.push_back(text.substr(begin));
  }

 private:
  MatchData data_;
  MatchContext context_;
  JitStack stack_;
};

}  // namespace

PretokenizerTraits pretokenizer_traits(std::string_view name) {
  return find_rule(name).traits;
}

Pretokenizer::Pretokenizer(std::string_view name) {
  for (const std::string_view pattern : find_rule(name).patterns)
    codes_.push_back(compile(pattern));
}

std::vector<std::string_view> Pretokenizer::split(std::string_view text) const {
  Matcher matcher;
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    std::vector<std::string_view> parts{text.substr(0, std::max(valid, size_t{1}))};
    text.remove_prefix(parts.front().size());
    for (size_t i = 0; valid > 0 && i < codes_.size(); ++i) {
      std::vector<std::string_view> finer;
      for (const std::string_view part : parts)
        matcher.split(codes_[i], part, finer);
      parts.swap(finer);
    }
    words.insert(words.end(), parts.begin(), parts.end());
  }
  return words;
}

}  // namespace minfer
