#include "engine/request/constraint.h"

#include <algorithm>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "models/tokenizer/utf8.h"

namespace minfer {
namespace {

/// The limit of the search for text that follows for certain: its tokens share a step with other sequences' decoding.
constexpr size_t kMostForcedBytes = 256;

/// True if the pieces of these tokens, joined, are this text.
bool writes(const Tokenizer& tokenizer, std::span<const TokenId> tokens, std::string_view text) {
  for (const TokenId token : tokens) {
    const std::string_view piece = tokenizer.piece(token);
    if (piece.empty() || !text.starts_with(piece)) return false;
    text.remove_prefix(piece.size());
  }
  return text.empty();
}

/// The tokens of a text inside another one; empty if no tokens write exactly this text. SentencePiece
/// puts a space in front of a text. So the text is encoded behind a line's end, whose tokens are dropped.
std::vector<TokenId> encode_inside(const Tokenizer& tokenizer, const std::string& text) {
  constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
  std::vector<TokenId> tokens = tokenizer.encode(text, kPlain);
  if (writes(tokenizer, tokens, text)) return tokens;
  tokens = tokenizer.encode("\n" + text, kPlain);
  size_t first = 0;
  while (first < tokens.size() && tokenizer.piece(tokens[first]) == " ")
    ++first;
  if (first == tokens.size() || tokenizer.piece(tokens[first]) != "\n") return {};
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(first) + 1);
  return writes(tokenizer, tokens, text) ? tokens : std::vector<TokenId>();
}

}  // namespace

Constraint::Constraint(const Request& request, const Tokenizer& tokenizer,
                       std::span<const TokenId> ending_tokens)
    : tokenizer_(tokenizer),
      ending_tokens_(ending_tokens.begin(), ending_tokens.end()),
      ignore_eos_(request.sampling.ignore_eos),
      min_tokens_(request.sampling.min_tokens),
      compile_ns_(request.grammar->compile_ns),
      matcher_(request.grammar) {
  const int64_t begin_ns = now_ns();
  find_allowed(0);
  time_ns_ = now_ns() - begin_ns;
}

Constraint::Advance Constraint::advance(TokenId token, int32_t num_output, int32_t num_left, size_t slice) {
  const int64_t begin_ns = now_ns();
  Advance next;
  if (!is_paused_) {
    work_ = {};
    stage_ = Stage::drawn;
  }
  work_.begin_slice(slice);
  const size_t work_before = work_.spent();
  try {
    follow(token, num_output, num_left, next);
  } catch (const GrammarPaused&) {
    next.is_pending = true;
  } catch (const GrammarError& error) {
    next.error = error.what();
  }
  is_paused_ = next.is_pending;
  next.work = work_.spent() - work_before;
  if (!is_paused_) next.forced = forced_;
  time_ns_ += now_ns() - begin_ns;
  return next;
}

/// Continues from the stage in which it was paused.
void Constraint::follow(TokenId token, int32_t num_output, int32_t num_left, Advance& next) {
  if (stage_ == Stage::drawn) {
    forced_.clear();
    if (!matcher_.accept(token, &work_))
      fail<GrammarError>("token {} was drawn, which the grammar does not allow", token);
    stage_ = Stage::forced;
  }
  if (stage_ == Stage::forced) {
    take_forced(num_left);
    stage_ = Stage::allowed;
  }
  next.is_whole = matcher_.must_end();
  const auto num_forced = static_cast<int32_t>(forced_.size());
  if (!next.is_whole && num_forced < num_left) find_allowed(num_output + num_forced);
}

/// The text that must follow, without the bytes of an unfinished character. `is_last`: only a
/// control token, or nothing, can come behind the text, so its last token cannot be a longer one.
std::string Constraint::forced_text(bool& is_last) {
  std::string text = matcher_.forced_bytes(kMostForcedBytes, &work_);
  const size_t control = text.find(static_cast<char>(kControlByte));
  const size_t whole = valid_utf8_prefix(std::string_view(text).substr(0, control));
  is_last = whole == control;
  if (whole == text.size() && whole > 0) {
    GrammarMatcher behind = matcher_;
    is_last = behind.accept_bytes(text, &work_) && behind.must_end();
  }
  text.resize(whole);
  return text;
}

/// Takes the tokens of the forced text, as the model's tokeniser divides it. The
/// last token could be a longer one that includes what follows: the model draws it.
void Constraint::take_forced(int32_t most) {
  if (most <= 0) return;
  bool is_last = false;
  const std::string text = forced_text(is_last);
  if (text.empty()) return;
  const std::vector<TokenId> tokens = encode_inside(tokenizer_, text);
  if (tokens.empty()) return;
  const size_t num_sure = std::min(tokens.size() - (is_last ? 0 : 1), static_cast<size_t>(most));
  GrammarMatcher behind = matcher_;  // where a pause comes between them, they are taken again
  std::vector<TokenId> forced;
  for (const TokenId token : std::span(tokens).first(num_sure)) {
    if (std::ranges::find(ending_tokens_, token) != ending_tokens_.end() || !behind.accept(token, &work_))
      break;
    forced.push_back(token);
  }
  matcher_ = std::move(behind);
  forced_ = std::move(forced);
}

void Constraint::find_allowed(int32_t num_output) {
  mask_ = matcher_.mask(&work_);
  if (mask_->num_allowed == 0) {
    fail<GrammarError>(
        "the grammar allows no token after the {} generated: no token of the vocabulary begins with a text "
        "that may follow",
        num_output);
  }
  if (ignore_eos_ || num_output < min_tokens_) {
    if (std::shared_ptr<const TokenMask> others = without_end_tokens(*mask_)) mask_ = std::move(others);
  }
}

/// Null if the mask is the same, or if nothing would be left.
std::shared_ptr<const TokenMask> Constraint::without_end_tokens(const TokenMask& mask) const {
  std::shared_ptr<TokenMask> others;
  for (const TokenId end : tokenizer_.end_tokens()) {
    if (!mask.allows(end)) continue;
    if (!others) others = std::make_shared<TokenMask>(mask);
    uint32_t& word = others->words[static_cast<size_t>(end) / 32];
    const uint32_t bit = uint32_t{1} << (static_cast<uint32_t>(end) % 32);
    others->num_allowed -= (word & bit) != 0 ? 1 : 0;
    word &= ~bit;
  }
  return others && others->num_allowed > 0 ? others : nullptr;
}

}  // namespace minfer
