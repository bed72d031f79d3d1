// The choice of keys on a GPU, attention to chosen keys, and keys without values in the cache.
#include <algorithm>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cuda/attention/chosen/choose_keys.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "tests/support/cuda/cuda_attention_step.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/key_choice.h"
#include "tests/support/models/fixtures.h"

namespace minfer {
namespace {

using test::CudaArray;
using test::CudaAttentionShape;
using test::CudaAttentionStep;
using test::CudaPagedBatch;
using test::CudaPagedCache;
using test::CudaSequence;
using test::CudaTensor;
using test::KeyChoiceData;
using test::KeyChoiceShape;

class CudaChoice : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

using CudaChosenAttention = CudaChoice;

constexpr int32_t kUntouched = -7;

/// A step that chooses keys, with other sequences behind the same pointers if they are assigned.
class ChoiceStep {
 public:
  ChoiceStep(const KeyChoiceShape& shape, std::vector<CudaSequence> sequences, DType q = DType::bf16,
             DType kv = DType::bf16, int32_t block_size = 16, int32_t max_context = 0)
      : shape_(shape),
        q_type_(q),
        kv_type_(kv),
        batch_(std::move(sequences), 2, block_size, 7, max_context),
        keys_(batch_, kv, 1, shape.key_size),
        ops_({.max_tokens = batch_.batch().num_tokens,
              .scored_keys = batch_.batch().max_blocks * block_size}) {
    fill();
  }

  void assign(std::vector<CudaSequence> sequences) {
    batch_.assign(std::move(sequences));
    keys_.clear();
    fill();
  }

  void launch() {
    cuda::Launch launch = run_.launch();
    ops_.choose(launch, batch_.batch(),
                {.q = q_->tensor(),
                 .weights = weights_->tensor(),
                 .heads = shape_.heads,
                 .scale = shape_.scale(),
                 .keys = {keys_.data(), keys_.data(), kv_type_, batch_.num_blocks(), batch_.block_size(), 1,
                          shape_.key_size, 0, true},
                 .most = shape_.most,
                 .chosen = chosen_->data()});
  }

  std::vector<int32_t> values() const {
    run_.wait();
    return chosen_->values();
  }

  /// `exact`: expects the keys by exact scores; else keys whose scores are about as large.
  void check(bool exact) const {
    const std::vector<int32_t> all = values();
    EXPECT_TRUE(keys_.unchanged() && q_->intact() && weights_->intact());
    EXPECT_EQ(std::count(all.end() - shape_.most, all.end(), kUntouched), shape_.most)
        << "wrote behind its rows";
    for (size_t t = 0; t < scores_.size(); ++t) {
      const auto chosen =
          std::span(all).subspan(t * static_cast<size_t>(shape_.most), static_cast<size_t>(shape_.most));
      const std::string what = fmt::format("{}, {}, {}, token {} of {} keys", shape_.text(), name(q_type_),
                                           name(kv_type_), t, scores_[t].size());
      if (std::ssize(scores_[t]) <= shape_.most) {
        EXPECT_EQ(std::ranges::count(chosen, kUntouched), shape_.most) << what;
      } else if (exact) {
        EXPECT_EQ(std::vector<int32_t>(chosen.begin(), chosen.end()),
                  test::best_keys(scores_[t], shape_.most))
            << what;
      } else {
        EXPECT_EQ(test::objection_to(chosen, scores_[t], 1e-3), "") << what;
      }
    }
  }
  test::CudaRun& run() { return run_; }

 private:
  static std::span<const float> rows(const std::vector<float>& values, int64_t cols, int32_t first,
                                     int32_t count) {
    return std::span(values).subspan(static_cast<size_t>(first * cols), static_cast<size_t>(count * cols));
  }

  /// q and weights of a sequence's queries depend on the sequence alone, so that they stay when other contexts are assigned.
  void fill() {
    std::vector<float> q, weights;
    scores_.clear();
    for (size_t s = 0; s < batch_.sequences().size(); ++s) {
      const auto [context, queries] = batch_.sequences()[s];
      const KeyChoiceData of_queries(shape_, queries, s + 1), of_keys(shape_, context, s + 1);
      const std::vector<float> of_q = test::rounded(of_queries.q, q_type_),
                               keys = test::rounded(of_keys.keys, kv_type_);
      if (context > 0) keys_.store(batch_, s, keys);
      for (int32_t t = 0; t < queries; ++t) {
        const int32_t seen = std::max(0, context - queries + t + 1);
        scores_.push_back(test::key_scores(shape_, rows(of_q, shape_.q_cols(), t, 1),
                                           rows(of_queries.weights, shape_.heads, t, 1),
                                           rows(keys, shape_.key_size, 0, seen)));
      }
      q.insert(q.end(), of_q.begin(), of_q.end());
      weights.insert(weights.end(), of_queries.weights.begin(), of_queries.weights.end());
    }
    keys_.upload();
    const int32_t tokens = batch_.batch().num_tokens;
    const std::vector<int32_t> untouched(static_cast<size_t>((tokens + 1) * shape_.most), kUntouched);
    if (chosen_) return chosen_->assign(untouched);
    q_.emplace(q_type_, tokens, shape_.q_cols(), q);
    weights_.emplace(DType::f32, tokens, shape_.heads, weights);
    chosen_.emplace(untouched);
  }

  KeyChoiceShape shape_;
  DType q_type_, kv_type_;
  test::CudaRun run_;
  CudaPagedBatch batch_;
  CudaPagedCache keys_;
  cuda::KeyChoiceOps ops_;
  std::optional<CudaTensor> q_, weights_;
  std::optional<CudaArray<int32_t>> chosen_;
  std::vector<std::vector<double>> scores_;  ///< of all keys that each token sees
};

const std::vector<CudaSequence> kMixed{{130, 1}, {16, 1},  {0, 1},  {97, 33},
                                       {1, 1},   {80, 80}, {17, 3}, {2500, 2}};

TEST_F(CudaChoice, TakesTheKeysWithTheLargestScores) {
  for (const auto& [q, kv] : {std::pair{DType::bf16, DType::bf16},
                              {DType::bf16, DType::f16},
                              {DType::f32, DType::f32},
                              {DType::f32, DType::f16},
                              {DType::bf16, DType::f32}}) {
    for (const KeyChoiceShape& shape : {KeyChoiceShape{},
                                        {.heads = 1, .key_size = 4, .most = 1},
                                        {.heads = 64, .key_size = 128, .most = 40},
                                        {.heads = 32, .key_size = 128, .most = 96},
                                        {.heads = 5, .key_size = 128, .most = 2048},
                                        {.heads = 17, .key_size = 128, .most = 7},
                                        {.heads = 30, .key_size = 72, .most = 64}}) {
      ChoiceStep step(shape, kMixed, q, kv, q == DType::f32 ? 12 : 16);
      step.launch();
      step.check(false);
    }
  }
}

/// Whole numbers: no product or sum rounds, and many scores are equal.
TEST_F(CudaChoice, TakesTheLowerPositionOfEqualScores) {
  for (const DType q : {DType::bf16, DType::f32}) {
    for (const int32_t most : {1, 7, 31, 79, 1500}) {
      for (const int32_t size : {4, 128}) {
        ChoiceStep step({.heads = 3, .key_size = size, .most = most, .whole_numbers = true}, kMixed, q);
        step.launch();
        step.check(true);
      }
    }
  }
}

TEST_F(CudaChoice, TakesLongSequences) {
  for (const int32_t heads : {2, 64}) {
    ChoiceStep step({.heads = heads, .key_size = 128, .most = 2048, .whole_numbers = true},
                    {{40000, 1}, {2049, 1}, {20000, 3}});
    step.launch();
    step.check(true);
  }
}

/// More queries than scores are kept of at a time: 64 MiB are those of 838 queries of 20,000 keys.
TEST_F(CudaChoice, TakesMoreQueriesThanFitAtATime) {
  ChoiceStep step({.heads = 1, .key_size = 4, .most = 3, .whole_numbers = true},
                  {{300, 1}, {20, 1}, {1000, 900}}, DType::bf16, DType::bf16, 16, 20000);
  step.launch();
  step.check(true);
}

TEST_F(CudaChoice, ACapturedGraphServesOtherContexts) {
  ChoiceStep step({.heads = 64, .key_size = 128, .most = 32, .whole_numbers = true},
                  {{1, 1}, {2, 1}, {0, 1}, {50, 20}}, DType::bf16, DType::bf16, 16, 3000);
  const cuda::GraphExec graph = step.run().capture([&] { step.launch(); });
  for (const std::vector<CudaSequence>& sequences :
       {std::vector<CudaSequence>{{1, 1}, {2, 1}, {0, 1}, {50, 20}},
        {{3000, 1}, {33, 1}, {1, 1}, {3000, 20}},
        {{0, 1}, {32, 1}, {0, 1}, {20, 20}}}) {
    step.assign(sequences);
    step.run().replay(graph);
    step.check(true);
  }
}

TEST_F(CudaChoice, GivesTheSameKeysEveryTime) {
  for (const DType q : {DType::bf16, DType::f32}) {
    ChoiceStep step({.heads = 64, .key_size = 128, .most = 512}, {{5000, 1}, {700, 1}, {2000, 300}}, q);
    step.launch();
    const std::vector<int32_t> first = step.values();
    for (int i = 0; i < 20; ++i)
      step.launch();
    EXPECT_EQ(step.values(), first);
  }
}

TEST_F(CudaChoice, RefusesHeadsThatAreTooMany) {
  ChoiceStep step({.heads = 65, .key_size = 128}, {{40, 1}, {1, 1}});
  EXPECT_THROW(step.launch(), Error);
}

CudaAttentionShape chosen_shape(int32_t heads, int32_t most, DType kv = DType::bf16) {
  return {.heads = heads,
          .kv_heads = 1,
          .head_size = 576,
          .kv = kv,
          .v_head_size = 512,
          .v_in_k = true,
          .most_chosen = most};
}

void expect_chosen(const CudaAttentionShape& shape, const std::vector<CudaSequence>& sequences,
                   int32_t num_decode) {
  CudaAttentionStep step(shape, sequences, num_decode);
  step.launch();
  step.check();
}

const std::vector<CudaSequence> kChoosingOneByOne{{1, 1},    {15, 1},  {0, 1},   {65, 1},
                                                  {1025, 1}, {128, 1}, {129, 1}, {3000, 1}};
const std::vector<CudaSequence> kChoosingPrompts{{150, 150}, {300, 17}, {2, 2}, {1, 1}, {64, 64}, {513, 40}};

TEST_F(CudaChosenAttention, DecodesAndPrefills) {
  for (const int32_t heads : {1, 15, 16, 33, 64, 128}) {
    const DType kv = heads % 2 == 0 ? DType::bf16 : DType::f16;
    for (const int32_t most : {1, 64, 130}) {
      if (heads > 33 && most != 64) continue;  // the reference would take minutes
      expect_chosen(chosen_shape(heads, most, kv), kChoosingOneByOne,
                    static_cast<int32_t>(kChoosingOneByOne.size()));
      expect_chosen(chosen_shape(heads, most, kv), kChoosingPrompts, 0);
    }
    expect_chosen(chosen_shape(heads, 2048, kv), {{5000, 1}}, 1);  // keys in many parts
    expect_chosen(chosen_shape(heads, 40, kv), {{100, 3}, {1, 1}, {700, 5}, {0, 1}, {200, 9}}, 4);
  }
}

TEST_F(CudaChosenAttention, OtherTypesAndSizes) {
  for (const auto& [head_size, value_size] : {std::pair{576, 512}, {40, 24}, {640, 600}}) {
    for (const DType kv : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3}) {
      for (const DType qkv : {DType::f32, DType::bf16}) {
        CudaAttentionShape shape = chosen_shape(5, 37, kv);
        shape.head_size = head_size;
        shape.v_head_size = value_size;
        shape.qkv = shape.out = qkv;
        expect_chosen(shape, {{300, 1}, {1, 1}, {0, 1}, {40, 40}, {200, 33}}, 3);
      }
    }
  }
}

TEST_F(CudaChosenAttention, ReadsBlocksOfEverySize) {
  for (const int32_t block_size : {1, 12, 256}) {
    CudaAttentionShape shape = chosen_shape(16, 50);
    shape.block_size = block_size;
    expect_chosen(shape, {{300, 1}, {1, 1}, {3000, 1}, {200, 100}}, 3);
  }
}

TEST_F(CudaChosenAttention, ACapturedGraphServesOtherContexts) {
  CudaAttentionStep step(chosen_shape(16, 64), {{1, 1}, {2, 1}, {3, 1}, {0, 1}, {50, 20}}, 4, 3000);
  const cuda::GraphExec graph = step.run().capture([&] { step.launch(); });
  for (const std::vector<CudaSequence>& sequences :
       {std::vector<CudaSequence>{{1, 1}, {2, 1}, {3, 1}, {0, 1}, {50, 20}},
        {{3000, 1}, {17, 1}, {100, 1}, {1, 1}, {3000, 20}},
        {{0, 1}, {0, 1}, {0, 1}, {0, 1}, {20, 20}}}) {
    step.assign(sequences);
    step.run().replay(graph);
    step.check();
  }
}

TEST_F(CudaChosenAttention, GivesTheSameBitsEveryTime) {
  CudaAttentionStep step(chosen_shape(16, 256), {{4097, 1}, {300, 1}, {17, 1}, {100, 100}, {2000, 300}}, 3);
  step.launch();
  const std::vector<float> first = step.values();
  for (int i = 0; i < 20; ++i)
    step.launch();
  EXPECT_EQ(step.values(), first);
}

TEST_F(CudaChosenAttention, RefusesWindowsAndKeysWithValuesOfTheirOwn) {
  CudaAttentionShape shape = chosen_shape(16, 30);
  shape.options = {.window = 50};
  EXPECT_THROW(expect_chosen(shape, {{300, 1}}, 1), Error);
  EXPECT_THROW(expect_chosen({.most_chosen = 30}, {{300, 1}}, 1), Error);
}

}  // namespace
}  // namespace minfer
