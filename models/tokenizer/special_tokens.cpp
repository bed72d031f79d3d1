#include "models/tokenizer/special_tokens.h"

#include <algorithm>
#include <span>

namespace minfer {
namespace {

// Ends of a turn or a document in the models people use; converters do not always name them in the metadata.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<|eot|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<｜end▁of▁sentence｜>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<turn|>",           // Gemma 4, as below
    "<|tool_response>",  // begins what a called tool answers
};

// The tokens around a gap to fill, in popular models (StarCoder, Qwen, Code Llama, DeepSeek, Granite, GLM).
constexpr std::string_view kFimPrefixTexts[] = {
    "<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<PRE>", "\u2581<PRE>", "<\uff5cfim\u2581begin\uff5c>",
    "<|code_prefix|>"};
constexpr std::string_view kFimSuffixTexts[] = {
    "<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<SUF>", "\u2581<SUF>", "<\uff5cfim\u2581hole\uff5c>",
    "<|code_suffix|>"};
constexpr std::string_view kFimMiddleTexts[] = {
    "<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<MID>", "\u2581<MID>", "<\uff5cfim\u2581end\uff5c>",
    "<|code_middle|>"};

// Phi-3's tokens that leave the white space after them alone (tokenizer_config.json, "rstrip": false).
constexpr std::string_view kKeepsRight[] = {"<unk>", "<s>", "<|endoftext|>"};

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

size_t leading_space(std::string_view text) {
  return static_cast<size_t>(std::ranges::find_if_not(text, is_space) - text.begin());
}

TokenId find_text(const Vocabulary& vocabulary, std::string_view text) {
  const auto found = std::ranges::find(vocabulary.tokens, text);
  return found == vocabulary.tokens.end() ? -1 : static_cast<TokenId>(found - vocabulary.tokens.begin());
}

std::vector<TokenType> guess_types(const Vocabulary& vocabulary) {
  std::vector<TokenType> types(vocabulary.tokens.size(), TokenType::normal);
  if (vocabulary.model != VocabularyModel::byte_level_bpe) {
    for (size_t id = 0; id < types.size(); ++id) {
      if (parse_byte_token(vocabulary.tokens[id])) types[id] = TokenType::byte;
    }
  }
  for (const TokenId id : {vocabulary.bos, vocabulary.eos}) {
    if (id >= 0) types[static_cast<size_t>(id)] = TokenType::control;
  }
  if (vocabulary.unknown >= 0) types[static_cast<size_t>(vocabulary.unknown)] = TokenType::unknown;
  return types;
}

/// `token`, or else the first one with any of these texts.
void complete_fim(const Vocabulary& vocabulary, std::span<const std::string_view> texts, TokenId& token) {
  for (size_t i = 0; token < 0 && i < texts.size(); ++i)
    token = find_text(vocabulary, texts[i]);
}

}  // namespace

void complete_special_tokens(Vocabulary& vocabulary) {
  std::vector<TokenType>& types = vocabulary.types;
  if (types.empty()) types = guess_types(vocabulary);
  std::vector<TokenId>& ends = vocabulary.end_tokens;
  ends.push_back(vocabulary.eos);
  // In OpenAI's harmony format <|end|> ends a message, and the turn goes on until <|return|> or <|call|>.
  const bool harmony = find_text(vocabulary, "<|return|>") >= 0 && find_text(vocabulary, "<|call|>") >= 0;
  for (const std::string_view text : kEndTexts) {
    const TokenId id = find_text(vocabulary, text);
    if (id < 0 || (harmony && text == "<|end|>")) continue;
    types[static_cast<size_t>(id)] = TokenType::control;
    ends.push_back(id);
  }
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::erase(ends, -1);
  // Text that the vocabulary lacks is left out where it would begin or end a document.
  TokenId& unknown = vocabulary.unknown;
  if (unknown == vocabulary.bos || std::ranges::count(ends, unknown) > 0) unknown = -1;
  FimTokens& fim = vocabulary.fim;
  complete_fim(vocabulary, kFimPrefixTexts, fim.prefix);
  complete_fim(vocabulary, kFimSuffixTexts, fim.suffix);
  complete_fim(vocabulary, kFimMiddleTexts, fim.middle);
  for (const TokenId token : {fim.prefix, fim.suffix, fim.middle}) {
    if (fim.complete()) types[static_cast<size_t>(token)] = TokenType::control;
  }
}

void SpecialTokens::TextSet::build() {
  // Stable: of tokens with the same text the first one counts.
  std::ranges::stable_sort(entries, {}, &std::pair<std::string, TokenId>::first);
  for (const auto& [text, id] : entries)
    starts[static_cast<unsigned char>(text.front())] = true;
}

const std::pair<std::string, TokenId>* SpecialTokens::TextSet::longest_prefix(std::string_view text) const {
  if (!starts[static_cast<unsigned char>(text.front())]) return nullptr;
  const std::pair<std::string, TokenId>* longest = nullptr;
  std::span range(entries);  // texts that share text[0, depth)
  for (size_t depth = 0; depth <= text.size() && !range.empty(); ++depth) {
    // The shortest text of the range comes first; a duplicate behind it has the same length and is passed over.
    if (range.front().first.size() == depth) longest = &range.front();
    if (depth == text.size()) break;
    const auto byte_at_depth = [depth](const auto& entry) {
      return depth < entry.first.size() ? static_cast<int>(static_cast<unsigned char>(entry.first[depth]))
                                        : -1;
    };
    const int byte = static_cast<unsigned char>(text[depth]);
    const auto begin = std::ranges::lower_bound(range, byte, {}, byte_at_depth);
    const auto end = std::ranges::upper_bound(begin, range.end(), byte, {}, byte_at_depth);
    range = {begin, end};
  }
  return longest;
}

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) : strip_right_(vocabulary.strip_right_of_special) {
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string& text = vocabulary.tokens[static_cast<size_t>(id)];
    if (text.empty() || !is_special(vocabulary.type(id))) continue;
    all_.entries.emplace_back(text, id);
    if (vocabulary.type(id) == TokenType::user_defined) user_defined_.entries.emplace_back(text, id);
  }
  all_.build();
  user_defined_.build();
}

std::vector<SpecialTokens::Fragment> SpecialTokens::split(std::string_view text, bool parse_special) const {
  const TextSet& set = parse_special ? all_ : user_defined_;
  std::vector<Fragment> fragments;
  size_t begin = 0;  // of the plain text before `position`
  size_t position = 0;
  while (position < text.size()) {
    const std::pair<std::string, TokenId>* entry = set.longest_prefix(text.substr(position));
    if (entry == nullptr) {
      ++position;
      continue;
    }
    if (position > begin) fragments.push_back({-1, text.substr(begin, position - begin)});
    fragments.push_back({entry->second, text.substr(position, entry->first.size())});
    position += entry->first.size();
    if (strip_right_ && std::ranges::find(kKeepsRight, entry->first) == std::end(kKeepsRight)) {
      position += leading_space(text.substr(position));
    }
    begin = position;
  }
  if (begin < text.size()) fragments.push_back({-1, text.substr(begin)});
  return fragments;
}

}  // namespace minfer
