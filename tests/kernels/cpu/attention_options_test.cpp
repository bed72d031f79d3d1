#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/op_args.h"
#include "tests/support/attention_run.h"
#include "tests/support/isa_scope.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"

// The additions of model families to attention: windows, sinks, capped logits, a scale, values of another size.
namespace minfer {
namespace {

using test::AttentionResult;
using test::AttentionShape;
using test::SequenceShape;

std::vector<uint64_t> names_of(const std::vector<SequenceShape>& sequences) {
  std::vector<uint64_t> names;
  for (size_t s = 0; s < sequences.size(); ++s)
    names.push_back(s + 1);
  return names;
}

void expect_near_reference(const AttentionShape& shape, const std::vector<SequenceShape>& sequences) {
  const auto backend = make_cpu_backend(2);
  const AttentionResult result = run_attention(*backend, shape, sequences, names_of(sequences), true);
  // A capped score may be off by 2e-7 of the cap, whatever its size.
  const double limit = shape.options.logit_cap > 0.0 ? 1e-10 : 1e-12;
  for (size_t s = 0; s < sequences.size(); ++s) {
    EXPECT_LT(test::nmse(result.out[s], result.reference[s]), limit)
        << shape.text() << ", context " << sequences[s].context << ", queries " << sequences[s].queries;
  }
}

/// Scores of `shape` are larger than a trained model's, so that a cap matters.
AttentionShape with_everything(int32_t window, int32_t heads = 4, bool chunked = false) {
  return {
      .heads = heads,
      .options = {.window = window, .chunked = chunked, .logit_cap = 3.0, .sinks = test::random_sinks(heads)},
      .scale = 0.31f};
}

const std::vector<SequenceShape> kMixed{{130, 1}, {40, 1},  {97, 33}, {1, 1},
                                        {80, 80}, {300, 2}, {64, 64}, {200, 130}};

TEST(AttentionOptions, WindowsOfEverySize) {
  for (const int32_t window :
       {1, 2, 15, 16, 17, 63, 64, 65, 100, 128, 129, 200, 1000, std::numeric_limits<int32_t>::max()}) {
    expect_near_reference({.options = {.window = window}}, kMixed);
  }
}

TEST(AttentionOptions, WindowsAcrossBlockEdges) {
  for (const int32_t block_size : {1, 5, 8, 16, 32, 48}) {
    for (const int32_t group : {1, 3, 7}) {
      for (const int32_t window : {1, 7, 33, 70}) {
        expect_near_reference({.heads = 2 * group, .block_size = block_size, .options = {.window = window}},
                              {{150, 1}, {150, 150}, {131, 40}, {33, 2}});
      }
    }
  }
}

TEST(AttentionOptions, HiddenPositions) {
  for (const int32_t hidden : {1, 17, 70}) {
    for (const int32_t window : {0, 40})
      expect_near_reference({.options = {.window = window, .hidden = hidden}}, kMixed);
    for (const int32_t block_size : {1, 5, 48})
      expect_near_reference({.heads = 6, .block_size = block_size, .options = {.hidden = hidden}}, kMixed);
  }
}

/// Queries at both ends of chunks, and steps that contain the end of one chunk and the begin of the next.
TEST(AttentionOptions, ChunksOfEverySize) {
  for (const int32_t keys : {1, 2, 15, 16, 17, 63, 64, 65, 100, 128, 129, 200, 1000})
    expect_near_reference({.options = {.window = keys, .chunked = true}}, kMixed);
  for (const int32_t block_size : {1, 5, 16, 48}) {
    for (const int32_t keys : {1, 7, 33, 70}) {
      expect_near_reference(
          {.heads = 6, .block_size = block_size, .options = {.window = keys, .chunked = true}},
          {{140, 1}, {141, 1}, {150, 150}, {142, 3}, {131, 40}, {33, 2}});
    }
  }
}

/// A chunk is not a window: its first query sees itself alone, its last query all of the chunk.
TEST(AttentionOptions, ChunksBeginAnew) {
  const auto backend = make_cpu_backend(1);
  const AttentionShape chunks{.options = {.window = 32, .chunked = true}};
  const AttentionShape windows{.options = {.window = 32}}, alone{.options = {.window = 1}};
  const auto out = [&](const AttentionShape& shape, int32_t context) {
    return run_attention(*backend, shape, {{context, 1}}, {1}).out;
  };
  EXPECT_EQ(out(chunks, 65), out(alone, 65));
  EXPECT_EQ(out(chunks, 64), out(windows, 64));
  EXPECT_NE(out(chunks, 70), out(windows, 70));
  EXPECT_EQ(out(chunks, 32), out({}, 32));
}

TEST(AttentionOptions, Sinks) {
  for (const int32_t group : {1, 4}) {
    AttentionShape shape{.heads = 2 * group, .options = {.sinks = test::random_sinks(2 * group)}};
    expect_near_reference(shape, kMixed);
    shape.options.window = 20;
    expect_near_reference(shape, kMixed);
  }
}

TEST(AttentionOptions, ASinkFarAboveAllScoresTakesAllWeight) {
  const auto backend = make_cpu_backend(1);
  AttentionShape shape{.heads = 2, .kv_heads = 1, .options = {.sinks = {1000.0f, -1000.0f}}};
  const AttentionResult with = run_attention(*backend, shape, {{100, 1}}, {1});
  shape.options.sinks.clear();
  const AttentionResult without = run_attention(*backend, shape, {{100, 1}}, {1});
  for (int32_t d = 0; d < shape.head_size; ++d) {
    EXPECT_EQ(with.out[0][d], 0.0f) << "element " << d;
    EXPECT_EQ(with.out[0][shape.head_size + d], without.out[0][shape.head_size + d]) << "element " << d;
  }
}

TEST(AttentionOptions, CappedLogits) {
  for (const double cap : {0.5, 3.0, 50.0}) {
    for (const float scale : {0.01f, 0.125f, 2.0f}) {
      expect_near_reference({.options = {.logit_cap = cap}, .scale = scale}, kMixed);
    }
  }
}

TEST(AttentionOptions, ValuesOfAnotherSize) {
  for (const int32_t value_size : {16, 20, 64, 80, 128}) {
    for (const int32_t head_size : {20, 64, 96}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        expect_near_reference({.head_size = head_size, .dtype = dtype, .v_head_size = value_size}, kMixed);
      }
    }
  }
}

TEST(AttentionOptions, AllTogether) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const auto& [window, chunked] : {std::pair{1, false}, {20, false}, {77, true}, {500, false}}) {
      AttentionShape shape = with_everything(window, 14, chunked);
      shape.dtype = dtype;
      shape.head_size = 40;
      shape.v_head_size = 48;
      shape.block_size = 8;
      expect_near_reference(shape, kMixed);
    }
  }
}

TEST(AttentionOptions, GiveTheSameBitsAloneInABatchAndInChunks) {
  const auto backend = make_cpu_backend(2);
  for (const auto& [window, chunked] :
       {std::pair{1, false}, {20, false}, {20, true}, {64, false}, {64, true}, {77, false}}) {
    const AttentionShape shape = with_everything(window, 4, chunked);
    const AttentionResult together = run_attention(*backend, shape, kMixed, names_of(kMixed));
    for (size_t s = 0; s < kMixed.size(); ++s) {
      EXPECT_EQ(run_attention(*backend, shape, {kMixed[s]}, {s + 1}).out[0], together.out[s])
          << shape.text() << ", sequence " << s;
    }
    const std::vector<float> whole = run_attention(*backend, shape, {{150, 150}}, {5}).out[0];
    for (const int32_t chunk : {1, 7, 16, 64}) {
      std::vector<float> rows;
      for (int32_t begin = 0; begin < 150; begin += chunk) {
        const int32_t end = std::min(150, begin + chunk);
        const auto step = run_attention(*backend, shape, {{end, end - begin}}, {5});
        rows.insert(rows.end(), step.out[0].begin(), step.out[0].end());
      }
      EXPECT_EQ(rows, whole) << shape.text() << ", chunks of " << chunk;
    }
  }
}

TEST(AttentionOptions, GiveTheSameBitsOnEveryInstructionSetAndAnyThreads) {
  for (const int32_t head_size : {64, 20}) {
    AttentionShape shape = with_everything(77);
    shape.head_size = head_size;
    const auto expected = run_attention(*make_cpu_backend(2), shape, kMixed, names_of(kMixed)).out;
    EXPECT_EQ(run_attention(*make_cpu_backend(1), shape, kMixed, names_of(kMixed)).out, expected);
    for (const auto& isa : test::IsaScope::available()) {
      const test::IsaScope scope(isa);
      EXPECT_EQ(run_attention(*make_cpu_backend(3), shape, kMixed, names_of(kMixed)).out, expected) << isa;
    }
  }
}

/// A window longer than any context equals no window, bit for bit.
TEST(AttentionOptions, AWideWindowIsNone) {
  const auto backend = make_cpu_backend(2);
  const auto full = run_attention(*backend, {}, kMixed, names_of(kMixed)).out;
  EXPECT_EQ(run_attention(*backend, {.options = {.window = 300}}, kMixed, names_of(kMixed)).out, full);
  EXPECT_NE(run_attention(*backend, {.options = {.window = 298}}, kMixed, names_of(kMixed)).out, full);
}

TEST(AttentionOptions, AreRefusedByName) {
  const auto backend = make_cpu_backend(1);
  const auto refused = [&](const AttentionShape& shape) {
    try {
      run_attention(*backend, shape, {{3, 1}}, {1});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_TRUE(refused({}).empty());
  EXPECT_NE(refused({.options = {.window = -1}}).find("a window of -1 keys"), std::string::npos);
  EXPECT_NE(refused({.options = {.logit_cap = -2.0}}).find("capped at -2"), std::string::npos);
  EXPECT_NE(refused({.options = {.logit_cap = NAN}}).find("capped at nan"), std::string::npos);
}

}  // namespace
}  // namespace minfer
