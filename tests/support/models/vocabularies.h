#pragma once

#include <string>
#include <string_view>

#include "models/tokenizer/vocabulary.h"

namespace minfer::test {

/// A SentencePiece vocabulary of some 300 tokens: <unk> <s> </s>, the bytes, letters, and a few merges with
/// scores. token_id() finds the ids of other tokens.
Vocabulary small_sentencepiece_vocabulary();

/// A byte-level BPE vocabulary of some 300 tokens for the pre-tokeniser `pre`: the bytes, merges that reach
/// "Ġhello", "Ġworld" and runs of spaces, control tokens <|endoftext|> (BOS and EOS) and <|im_end|>, and the
/// user-defined token <tool>.
Vocabulary small_bpe_vocabulary(std::string_view pre = "gpt-2");

/// A vocabulary like Gemma 4's, of some 300 tokens: <pad> <eos> <bos> <unk>, the bytes, letters, merges that reach "▁the▁end" and runs of
/// spaces, runs of one, two and five line ends, control tokens <|turn> and <turn|>, and the user-defined token <tool>.
Vocabulary small_character_bpe_vocabulary();

/// small_bpe_vocabulary() with tokens around a gap that an answer fills, and if `with_files` with one before each of several files.
Vocabulary gap_vocabulary(bool with_files);

/// The id of the token with that text; -1 if there is none.
TokenId token_id(const Vocabulary& vocabulary, std::string_view text);

/// Appends a token and returns its id.
TokenId add_token(Vocabulary& vocabulary, std::string text, TokenType type, float score = 0.0f);

}  // namespace minfer::test
