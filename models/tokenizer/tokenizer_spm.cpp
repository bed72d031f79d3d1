#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <unordered_map>

#include "models/tokenizer/byte_alphabet.h"
#include "models/tokenizer/utf8.h"
#include "models/tokenizer/vocabulary_tokenizer.h"

namespace minfer {
namespace {

/// Spaces as SentencePiece's remove_extra_whitespaces leaves them: none at either end, one where there were several.
std::string collapse_spaces(std::string_view text) {
  std::string collapsed;
  for (const char c : text) {
    if (c == ' ' && (collapsed.empty() || collapsed.back() == ' ')) continue;
    collapsed += c;
  }
  if (collapsed.ends_with(' ')) collapsed.pop_back();
  return collapsed;
}

/// True if a piece has U+2581 behind another character. If no piece has, none lies across the beginning of a run of spaces.
bool has_inner_space(std::string_view piece) {
  for (size_t at = piece.find(kEscapedSpace, 1); at != std::string_view::npos;
       at = piece.find(kEscapedSpace, at + 1)) {
    if (!piece.substr(0, at).ends_with(kEscapedSpace)) return true;
  }
  return false;
}

// Long texts are merged in parts, where that cannot change the tokens: the candidates of a part stay in the caches.
constexpr size_t kPartBytes = 4096;

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// A pair of neighbours whose text is a piece, or was when it was queued.
struct Candidate {
  float score;
  uint32_t left;  ///< where it begins
  uint32_t size;  ///< of both together

  /// The best score is on top of a std::priority_queue, of equal ones the leftmost.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.score < b.score || (a.score == b.score && a.left > b.left);
  }
};

/// SentencePiece's BPE: characters are merged into pieces, the pair with the best score first. Special tokens are cut out before, spaces
/// are escaped and prefixed. What is no piece, such as bytes that are not UTF-8, becomes its bytes' tokens.
class SentencePieceTokenizer final : public VocabularyTokenizer {
 public:
  explicit SentencePieceTokenizer(const Vocabulary& vocabulary)
      : VocabularyTokenizer(vocabulary),
        byte_ids_(find_byte_tokens(vocabulary)),
        unknown_(vocabulary.unknown),
        add_space_prefix_(vocabulary.add_space_prefix),
        remove_extra_whitespaces_(vocabulary.remove_extra_whitespaces) {
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
      const std::string& text = vocabulary.tokens[static_cast<size_t>(id)];
      if (is_special(type(id)) || text.empty() || parse_byte_token(text)) continue;
      const float score = vocabulary.scores.empty() ? 0.0f : vocabulary.scores[static_cast<size_t>(id)];
      by_text_.try_emplace(text, Piece{id, score});  // of tokens with the same text the first one counts
      if (has_inner_space(text)) divisible_at_spaces_ = false;
    }
  }

 private:
  struct Piece {
    TokenId id;
    float score;
  };
  /// How pieces that no text may become were made: the size of their left part, by their text.
  using Divisions = std::unordered_map<std::string_view, uint32_t>;

  void encode_text(std::string_view text, std::vector<TokenId>& ids) const override {
    std::string spaced(text);
    if (remove_extra_whitespaces_) spaced = collapse_spaces(spaced);
    if (spaced.empty()) return;
    if (add_space_prefix_) spaced.insert(spaced.begin(), ' ');
    const std::string escaped = escape_spaces(spaced);

    for (std::string_view rest = escaped; !rest.empty();) {
      const size_t size = part_size(rest);
      encode_part(rest.substr(0, size), ids);
      rest.remove_prefix(size);
    }
  }

  void encode_part(std::string_view text, std::vector<TokenId>& ids) const {
    struct Symbol {
      uint32_t size = 0;      ///< 0: no symbol begins here
      uint32_t previous = 0;  ///< where the one before it begins
    };
    std::vector<Symbol> symbols(text.size());  // by the place of their first byte
    std::vector<Candidate> queued;
    queued.reserve(text.size());
    std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(queued));
    Divisions divisions;
    const auto queue_pair_at = [&](uint32_t left) {
      const uint32_t right = left + symbols[left].size;
      if (right >= text.size()) return;
      const std::string_view both = text.substr(left, symbols[left].size + symbols[right].size);
      const auto found = by_text_.find(both);
      if (found == by_text_.end()) return;
      queue.push({found->second.score, left, static_cast<uint32_t>(both.size())});
      if (type(found->second.id) == TokenType::unused) divisions[both] = symbols[left].size;
    };
    uint32_t last = 0;
    for (uint32_t place = 0; place < text.size(); place += symbols[place].size) {
      symbols[place] = {static_cast<uint32_t>(read_utf8(text.substr(place)).length), last};
      if (place > 0) queue_pair_at(last);
      last = place;
    }
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      Symbol& left = symbols[best.left];
      const uint32_t right = best.left + left.size;
      // The pair may have changed since.
      if (left.size == 0 || right >= text.size() || left.size + symbols[right].size != best.size) continue;
      left.size = best.size;
      symbols[right].size = 0;
      const uint32_t next = best.left + best.size;
      if (next < text.size()) symbols[next].previous = best.left;
      if (best.left > 0) queue_pair_at(left.previous);
      queue_pair_at(best.left);
    }
    for (uint32_t place = 0; place < text.size(); place += symbols[place].size)
      append(text.substr(place, symbols[place].size), divisions, ids);
  }

  void append(std::string_view text, const Divisions& divisions, std::vector<TokenId>& ids) const {
    const auto found = by_text_.find(text);
    if (found == by_text_.end()) {
      for (const char c : text)
        append_byte(static_cast<uint8_t>(c), ids);
      return;
    }
    const auto divided = divisions.find(text);
    if (divided == divisions.end()) return ids.push_back(found->second.id);
    append(text.substr(0, divided->second), divisions, ids);
    append(text.substr(divided->second), divisions, ids);
  }

  /// Bytes at the front of `text` whose tokens do not depend on what follows.
  size_t part_size(std::string_view text) const {
    if (!divisible_at_spaces_) return text.size();
    size_t at = text.find(kEscapedSpace, kPartBytes);
    while (at != std::string_view::npos && text.substr(0, at).ends_with(kEscapedSpace))
      at = text.find(kEscapedSpace, at + 1);
    return std::min(at, text.size());
  }

  void append_byte(uint8_t byte, std::vector<TokenId>& ids) const {
    if (byte_ids_[byte] >= 0) {
      ids.push_back(byte_ids_[byte]);
    } else if (unknown_ >= 0 && (ids.empty() || ids.back() != unknown_)) {
      // Without byte tokens SentencePiece gives one unknown token for a run of unknown characters.
      ids.push_back(unknown_);
    }
  }

  std::unordered_map<std::string, Piece, TextHash, std::equal_to<>> by_text_;  ///< what merging may produce
  std::array<TokenId, 256> byte_ids_;
  TokenId unknown_;
  bool add_space_prefix_;
  bool remove_extra_whitespaces_;
  bool divisible_at_spaces_ = true;  ///< no piece lies across the beginning of a run of spaces
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const Vocabulary& vocabulary) {
  return std::make_unique<SentencePieceTokenizer>(vocabulary);
}

}  // namespace minfer
