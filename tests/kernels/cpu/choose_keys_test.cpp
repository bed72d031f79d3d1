// The choice of keys on the CPU backend, attention to chosen keys, and keys without values in the cache.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/attention_run.h"
#include "tests/support/isa_scope.h"
#include "tests/support/key_choice.h"
#include "tests/support/models/fixtures.h"

namespace minfer {
namespace {

using test::AttentionShape;
using test::DeviceArray;
using test::GuardedTensor;
using test::KeyChoiceData;
using test::KeyChoiceShape;
using test::PagedBatch;
using test::PagedCache;
using test::SequenceShape;

constexpr int32_t kUntouched = -7;

/// What choose_keys() gave and should give for each query of a step, in order.
struct Choices {
  std::vector<std::vector<int32_t>> chosen;
  std::vector<std::vector<double>> scores;  ///< of all keys that it sees
};

Choices choose(Backend& backend, const KeyChoiceShape& shape, const std::vector<SequenceShape>& sequences,
               const std::vector<uint64_t>& names, DType dtype = DType::f32, int32_t block_size = 16) {
  const PagedBatch batch(backend, sequences, block_size, 3);
  PagedCache keys(backend, batch, dtype, 1, shape.key_size);
  Choices choices;
  std::vector<float> q, weights;
  const auto rows = [](const std::vector<float>& values, int64_t cols, int32_t first, int32_t count) {
    return std::span(values).subspan(static_cast<size_t>(first * cols), static_cast<size_t>(count * cols));
  };
  for (size_t s = 0; s < sequences.size(); ++s) {
    const auto [context, queries] = sequences[s];
    const KeyChoiceData data(shape, context, names[s]);
    const std::vector<float> stored = keys.store(batch, s, data.keys);
    for (int32_t p = context - queries; p < context; ++p) {
      const auto of_q = rows(data.q, shape.q_cols(), p, 1),
                 of_weights = rows(data.weights, shape.heads, p, 1);
      q.insert(q.end(), of_q.begin(), of_q.end());
      weights.insert(weights.end(), of_weights.begin(), of_weights.end());
      choices.scores.push_back(
          test::key_scores(shape, of_q, of_weights, rows(stored, shape.key_size, 0, p + 1)));
    }
  }
  keys.upload();
  const int32_t tokens = batch.batch().num_tokens;
  const GuardedTensor q_in(backend, tokens, shape.q_cols(), q),
      weights_in(backend, tokens, shape.heads, weights);
  const DeviceArray<int32_t> out(backend,
                                 std::vector<int32_t>(static_cast<size_t>(tokens * shape.most), kUntouched));
  backend.choose_keys(
      0, batch.batch(),
      {.q = q_in.tensor(),
       .weights = weights_in.tensor(),
       .heads = shape.heads,
       .scale = shape.scale(),
       .keys = {keys.data(), keys.data(), dtype, batch.num_blocks(), block_size, 1, shape.key_size, 0, true},
       .most = shape.most,
       .chosen = out.data()});
  EXPECT_TRUE(keys.unchanged());
  const std::vector<int32_t> values = out.values();
  for (int32_t t = 0; t < tokens; ++t)
    choices.chosen.emplace_back(values.begin() + t * shape.most, values.begin() + (t + 1) * shape.most);
  return choices;
}

const std::vector<SequenceShape> kSteps{{130, 1}, {16, 1}, {97, 33}, {1, 1}, {80, 80}, {17, 3}};
const std::vector<uint64_t> kNames{1, 2, 3, 4, 5, 6};

TEST(ChooseKeys, TakesThoseWithTheLargestScores) {
  const auto backend = make_cpu_backend(2);
  for (const KeyChoiceShape& shape : {KeyChoiceShape{},
                                      {.heads = 1, .key_size = 2, .most = 1},
                                      {.heads = 64, .key_size = 128, .most = 40},
                                      {.heads = 70, .key_size = 17, .most = 96},
                                      {.heads = 130, .key_size = 8, .most = 3}}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Choices found = choose(*backend, shape, kSteps, kNames, dtype, dtype == DType::f32 ? 16 : 5);
      for (size_t i = 0; i < found.chosen.size(); ++i) {
        if (std::ssize(found.scores[i]) <= shape.most) {
          EXPECT_EQ(found.chosen[i], std::vector<int32_t>(static_cast<size_t>(shape.most), kUntouched));
        } else {
          EXPECT_EQ(test::objection_to(found.chosen[i], found.scores[i], 1e-4), "")
              << shape.text() << ", query " << i;
        }
      }
    }
  }
}

TEST(ChooseKeys, TakesTheLowerPositionOfEqualScores) {
  const auto backend = make_cpu_backend(2);
  for (const int32_t most : {1, 7, 16, 79}) {
    const KeyChoiceShape shape{.heads = 3, .key_size = 4, .most = most, .whole_numbers = true};
    const Choices found = choose(*backend, shape, kSteps, kNames);
    for (size_t i = 0; i < found.chosen.size(); ++i) {
      if (std::ssize(found.scores[i]) <= most) continue;
      EXPECT_EQ(found.chosen[i], test::best_keys(found.scores[i], most)) << most << " keys, query " << i;
    }
  }
}

/// Enough keys that threads share a query's, and more scores than are kept at once.
TEST(ChooseKeys, TakesLongSequences) {
  const KeyChoiceShape shape{.heads = 2, .key_size = 4, .most = 300, .whole_numbers = true};
  const Choices found = choose(*make_cpu_backend(3), shape, {{60000, 90}, {5000, 1}}, {1, 2});
  for (size_t i = 0; i < found.chosen.size(); ++i)
    ASSERT_EQ(found.chosen[i], test::best_keys(found.scores[i], 300)) << i;
}

TEST(ChooseKeys, GivesAQueryTheSameKeysAloneInABatchAndInPiecesOnAnyInstructionSet) {
  const KeyChoiceShape shape{.heads = 6, .key_size = 28, .most = 13};
  const Choices together = choose(*make_cpu_backend(3), shape, kSteps, kNames);
  for (const std::string& isa : test::IsaScope::available()) {
    const test::IsaScope scope(isa);
    const auto backend = make_cpu_backend(1);
    size_t next = 0;
    for (size_t s = 0; s < kSteps.size(); ++s) {
      for (int32_t p = kSteps[s].context - kSteps[s].queries; p < kSteps[s].context; ++p, ++next)
        EXPECT_EQ(choose(*backend, shape, {{p + 1, 1}}, {kNames[s]}, DType::f32, 12).chosen.front(),
                  together.chosen[next])
            << isa << ", sequence " << s << ", position " << p;
    }
  }
}

/// Numbers that are none, or infinite, end up somewhere, and each position at most once.
TEST(ChooseKeys, TakesScoresThatAreNoNumbers) {
  const auto backend = make_cpu_backend(1);
  const PagedBatch batch(*backend, {{64, 64}}, 16, 3);
  PagedCache keys(*backend, batch, DType::f32, 1, 4);
  std::vector<float> rows = test::normal_values(64 * 4, 1);
  for (size_t i = 0; i < rows.size(); i += 7)
    rows[i] = i % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  keys.store(batch, 0, rows);
  keys.upload();
  const GuardedTensor q(*backend, 64, 8, test::normal_values(64 * 8, 2));
  std::vector<float> weights = test::normal_values(64 * 2, 3);
  weights[40] = std::numeric_limits<float>::quiet_NaN();
  const GuardedTensor of_heads(*backend, 64, 2, weights);
  const DeviceArray<int32_t> out(*backend, std::vector<int32_t>(64 * 5, kUntouched));
  backend->choose_keys(0, batch.batch(),
                       {.q = q.tensor(),
                        .weights = of_heads.tensor(),
                        .heads = 2,
                        .scale = 0.5f,
                        .keys = {keys.data(), keys.data(), DType::f32, batch.num_blocks(), 16, 1, 4, 0, true},
                        .most = 5,
                        .chosen = out.data()});
  const std::vector<int32_t> values = out.values();
  for (int32_t t = 5; t < 64; ++t) {
    for (int32_t i = 0; i < 5; ++i) {
      const int32_t position = values[static_cast<size_t>(t * 5 + i)];
      EXPECT_TRUE(position >= 0 && position <= t);
      EXPECT_GT(position, i > 0 ? values[static_cast<size_t>(t * 5 + i - 1)] : -1);
    }
  }
}

AttentionShape chosen_shape(int32_t heads, int32_t latent, int32_t rotary, int32_t most) {
  return {.heads = heads,
          .kv_heads = 1,
          .head_size = latent + rotary,
          .v_head_size = latent,
          .v_in_k = true,
          .most_chosen = most};
}

const std::vector<SequenceShape> kAttending{{130, 1}, {40, 1}, {97, 33}, {1, 1}, {80, 80}, {64, 64}};

TEST(ChosenAttention, MatchesTheReference) {
  const auto backend = make_cpu_backend(2);
  for (const auto& [heads, latent, rotary, most] :
       {std::tuple{16, 512, 64, 48}, {70, 24, 16, 66}, {4, 17, 2, 1}, {65, 16, 8, 79}}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      AttentionShape shape = chosen_shape(heads, latent, rotary, most);
      shape.dtype = dtype;
      const auto result = run_attention(*backend, shape, kAttending, kNames, true);
      for (size_t s = 0; s < kAttending.size(); ++s)
        EXPECT_LT(test::nmse(result.out[s], result.reference[s]), 1e-12)
            << shape.text() << ", sequence " << s;
    }
  }
}

TEST(ChosenAttention, GivesTheSameBitsAloneInABatchAndInChunks) {
  const auto backend = make_cpu_backend(2);
  const AttentionShape shape = chosen_shape(5, 24, 16, 30);
  const auto together = run_attention(*backend, shape, kAttending, kNames).out;
  for (size_t s = 0; s < kAttending.size(); ++s)
    EXPECT_EQ(run_attention(*backend, shape, {kAttending[s]}, {kNames[s]}).out[0], together[s]) << s;
  for (const int32_t chunk : {1, 7, 64}) {
    std::vector<float> rows;
    for (int32_t begin = 0; begin < 80; begin += chunk) {
      const int32_t end = std::min(80, begin + chunk);
      const auto step = run_attention(*backend, shape, {{end, end - begin}}, {5}).out[0];
      rows.insert(rows.end(), step.begin(), step.end());
    }
    EXPECT_EQ(rows, together[4]) << "chunks of " << chunk;
  }
}

/// A query whose chosen keys are all that it sees: the bits of attention to all keys, whichever way it takes.
TEST(ChosenAttention, ToAllKeysGivesTheBitsOfAttentionWithoutAChoice) {
  const auto backend = make_cpu_backend(2);
  const PagedBatch batch(*backend, {{150, 1}}, 16, 3);
  PagedCache k(*backend, batch, DType::f32, 1, 40);
  k.store(batch, 0, test::normal_values(150 * 40, 1));
  k.upload();
  const GuardedTensor q(*backend, 1, 5 * 40, test::normal_values(5 * 40, 2));
  std::vector<std::vector<float>> results;
  std::vector<int32_t> all(150);
  std::iota(all.begin(), all.end(), 0);
  const DeviceArray<int32_t> chosen(*backend, all);
  const DeviceArray<int32_t> last(*backend, std::vector<int32_t>{149});
  for (const int32_t most : {0, 150, 149}) {
    const GuardedTensor out(*backend, 1, 5 * 24);
    backend->attention(0, batch.batch(),
                       {.qkv = q.tensor(),
                        .heads = 5,
                        .scale = 0.2f,
                        .kv = {k.data(), k.data(), DType::f32, batch.num_blocks(), 16, 1, 40, 24, true},
                        .num_sequences = 1,
                        .out = out.tensor(),
                        .chosen = most > 0 ? chosen.data() : nullptr,
                        .most_chosen = most});
    results.push_back(out.values());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_NE(results[0], results[2]);
  // Of a shorter sequence with the same keys, whose query sees those that were chosen.
  const PagedBatch shorter(*backend, {{149, 1}}, 16, 3);
  PagedCache same(*backend, shorter, DType::f32, 1, 40);
  const std::vector<float> rows = test::normal_values(150 * 40, 1);
  same.store(shorter, 0, std::span(rows).first(149 * 40));
  same.upload();
  const GuardedTensor out(*backend, 1, 5 * 24);
  backend->attention(0, shorter.batch(),
                     {.qkv = q.tensor(),
                      .heads = 5,
                      .scale = 0.2f,
                      .kv = {same.data(), same.data(), DType::f32, shorter.num_blocks(), 16, 1, 40, 24, true},
                      .num_sequences = 1,
                      .out = out.tensor()});
  EXPECT_EQ(out.values(), results[2]) << "a list of positions and all positions differ in bits";
}

TEST(ChosenAttention, RefusesWindowsCapsSinksAndSeveralKvHeads) {
  const auto backend = make_cpu_backend(1);
  AttentionShape shape = chosen_shape(4, 24, 16, 30);
  shape.options.window = 8;
  EXPECT_THROW(run_attention(*backend, shape, {{40, 1}}, {1}), Error);
  shape = {.most_chosen = 30};
  EXPECT_THROW(run_attention(*backend, shape, {{40, 1}}, {1}), Error);
}

/// Keys of a cache that has no values, with heads of queries beside them or without.
TEST(RopeKvWrite, WritesKeysToACacheWithoutValues) {
  const auto backend = make_cpu_backend(1);
  const PagedBatch batch(*backend, {{9, 4}}, 4, 3);
  const std::vector<float> angles = test::normal_values(9 * 4, 1);
  const DeviceArray<float> cos_sin(*backend, angles);
  for (const int32_t heads : {0, 3}) {
    const PagedCache keys(*backend, batch, DType::f32, 1, 6);
    const std::vector<float> rows = test::normal_values(int64_t{4} * (heads + 1) * 6, 2);
    const GuardedTensor qk(*backend, 4, (heads + 1) * 6, rows);
    RopeKvWriteArgs args{.qkv = qk.tensor(),
                         .q_out = {},
                         .heads = heads,
                         .rotary_size = 4,
                         .pairing = RopePairing::halves,
                         .cos_sin = cos_sin.data(),
                         .q_norm = {},
                         .k_norm = {},
                         .kv = {keys.data(), keys.data(), DType::f32, batch.num_blocks(), 4, 1, 6, 0, true}};
    backend->rope_kv_write(0, batch.batch(), args);
    EXPECT_TRUE(qk.intact());
    for (int32_t t = 0; t < 4; ++t) {
      const auto key = static_cast<size_t>((t * (heads + 1) + heads) * 6);
      std::vector<double> expected(rows.begin() + static_cast<int64_t>(key),
                                   rows.begin() + static_cast<int64_t>(key) + 6);
      reference::rotate_head(expected, std::span(angles).subspan(static_cast<size_t>(t + 5) * 4, 4),
                             RopePairing::halves);
      EXPECT_LT(test::nmse(keys.row(batch.slot(0, t + 5), 0), expected), 1e-12) << heads << " heads";
    }
    args.kv.v_head_size = 4;
    EXPECT_THROW(backend->rope_kv_write(0, batch.batch(), args), Error);
  }
}

}  // namespace
}  // namespace minfer
