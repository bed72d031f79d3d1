// Control tokens that appear and disappear in an answer's text.
#include <random>

#include <gtest/gtest.h>

#include "server/api/answer/answer_reader.h"
#include "tests/support/models/vocabularies.h"

namespace minfer {
namespace {

class SpecialTextTest : public testing::Test {
 protected:
  const Vocabulary vocabulary_ = test::small_bpe_vocabulary();
  const std::unique_ptr<const Tokenizer> tokenizer_ = make_tokenizer(test::small_bpe_vocabulary());
  const TokenId end_ = test::token_id(vocabulary_, "<|im_end|>");
};

TEST_F(SpecialTextTest, TakesOutWhatCameAsAControlToken) {
  SpecialText text(*tokenizer_);
  EXPECT_EQ(text.push("a<|im_end|>"), "a<|im_end|>") << "letters: no such token came";
  const TokenId plain = test::token_id(vocabulary_, "<tool>");
  text.see(std::vector<TokenId>{plain, end_});
  EXPECT_EQ(text.push("<tool>b<|im_end|>c<|im_end|><|im_end|>"), "<tool>bc");
}

TEST_F(SpecialTextTest, HoldsBackOnlyWhatMayBegin) {
  SpecialText text(*tokenizer_);
  text.see(std::vector<TokenId>{end_});
  EXPECT_EQ(text.push("x<|im"), "x");
  EXPECT_EQ(text.push("_sta"), "<|im_sta");
  EXPECT_EQ(text.push("<"), "");
  EXPECT_EQ(text.finish(), "<");
  EXPECT_EQ(text.finish(), "");
}

TEST_F(SpecialTextTest, AnySplitGivesTheSame) {
  std::mt19937 random(1);
  const std::string whole = "<<|im_end|>|<|im_<|im_end|>end|><|im_end|";
  for (int round = 0; round < 200; ++round) {
    SpecialText text(*tokenizer_);
    text.see(std::vector<TokenId>{end_});
    std::string joined;
    for (size_t i = 0; i < whole.size();) {
      const size_t size = 1 + random() % 7;
      joined += text.push(std::string_view(whole).substr(i, size));
      i += size;
    }
    EXPECT_EQ(joined + text.finish(), "<|<|im_end|><|im_end|");
  }
}

}  // namespace
}  // namespace minfer
