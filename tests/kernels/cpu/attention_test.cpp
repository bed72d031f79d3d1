#include <cmath>
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/support/attention_run.h"
#include "tests/support/isa_scope.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::GuardedTensor;
using test::PagedBatch;
using test::PagedCache;
using test::SequenceShape;

using Shape = test::AttentionShape;
using test::AttentionResult;
using test::run_attention;

void expect_close(Backend& backend, const Shape& shape, const std::vector<SequenceShape>& sequences) {
  std::vector<uint64_t> names;
  for (size_t s = 0; s < sequences.size(); ++s)
    names.push_back(s + 1);
  const AttentionResult result = run_attention(backend, shape, sequences, names, true);
  for (size_t s = 0; s < sequences.size(); ++s) {
    const double error = test::nmse(result.out[s], result.reference[s]);
    EXPECT_LT(error, 1e-12) << shape.text() << ", context " << sequences[s].context << ", queries "
                            << sequences[s].queries;
  }
}

TEST(Attention, MatchesTheReferenceForHeadSizesAndContexts) {
  const auto backend = make_cpu_backend(2);
  for (const int32_t head_size : {16, 32, 64, 80, 96, 128, 20}) {
    for (const int32_t context : {1, 15, 16, 17, 63, 64, 65, 100, 1000}) {
      Shape shape;
      shape.head_size = head_size;
      expect_close(*backend, shape, {{context, 1}});
    }
  }
}

TEST(Attention, MatchesTheReferenceForGroupsAndBlockSizes) {
  const auto backend = make_cpu_backend(3);
  for (const int32_t group : {1, 2, 4, 7, 8}) {
    for (const int32_t block_size : {1, 8, 16, 32}) {
      Shape shape;
      shape.heads = 2 * group;
      shape.head_size = 32;
      shape.block_size = block_size;
      expect_close(*backend, shape, {{100, 1}, {17, 17}, {90, 33}, {70, 3}});
    }
  }
}

TEST(Attention, MatchesTheReferenceForCacheTypes) {
  const auto backend = make_cpu_backend(2);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int32_t head_size : {64, 80, 20}) {
      Shape shape;
      shape.dtype = dtype;
      shape.head_size = head_size;
      expect_close(*backend, shape, {{100, 5}, {1, 1}, {65, 65}});
    }
  }
}

TEST(Attention, OneFarLargestScoreTakesAllWeight) {
  const auto backend = make_cpu_backend(1);
  Shape shape;
  shape.heads = shape.kv_heads = 1;
  shape.head_size = 16;
  const PagedBatch batch(*backend, {{200, 1}}, shape.block_size, 1);
  PagedCache k(*backend, batch, DType::f32, 1, 16);
  PagedCache v(*backend, batch, DType::f32, 1, 16);
  std::vector<float> keys(200 * 16, 0.0f);
  std::vector<float> values(200 * 16, 1.0f);
  keys[150 * 16] = 1000.0f;  // every other key underflows, both before and after it
  values[150 * 16] = 42.0f;
  k.store(batch, 0, keys);
  v.store(batch, 0, values);
  k.upload();
  v.upload();
  std::vector<float> qkv(48, 0.0f);
  qkv[0] = 1.0f;
  const GuardedTensor input(*backend, 1, 48, qkv);
  const GuardedTensor out(*backend, 1, 16);
  AttentionArgs args;
  args.qkv = input.tensor();
  args.heads = 1;
  args.scale = 1.0f;
  args.kv = {k.data(), v.data(), DType::f32, batch.num_blocks(), shape.block_size, 1, 16};
  args.num_sequences = 1;
  args.out = out.tensor();
  backend->attention(0, batch.batch(), args);
  EXPECT_EQ(out.values()[0], 42.0f);
  EXPECT_EQ(out.values()[1], 1.0f);
}

TEST(Attention, WritesOnlyTheNamedSequences) {
  const auto backend = make_cpu_backend(1);
  Shape shape;
  const PagedBatch batch(*backend, {{20, 2}, {30, 3}, {5, 1}}, shape.block_size, 1);
  PagedCache k(*backend, batch, DType::f32, shape.kv_heads, shape.head_size);
  for (size_t s = 0; s < 3; ++s) {
    k.store(batch, s, test::normal_values(batch.sequences()[s].context * shape.k_cols(), s));
  }
  k.upload();
  const GuardedTensor input(*backend, 6, shape.qkv_cols(), test::normal_values(6 * shape.qkv_cols(), 9));
  const GuardedTensor out(*backend, 6, shape.q_cols());
  AttentionArgs args;
  args.qkv = input.tensor();
  args.heads = shape.heads;
  args.scale = 0.1f;
  args.kv = {k.data(),         k.data(),       DType::f32,     batch.num_blocks(),
             shape.block_size, shape.kv_heads, shape.head_size};
  args.first_sequence = 1;
  args.num_sequences = 1;
  args.out = out.tensor();
  backend->attention(0, batch.batch(), args);
  const std::vector<float> values = out.values();
  for (int64_t i = 0; i < 6 * shape.q_cols(); ++i) {
    const int64_t token = i / shape.q_cols();
    EXPECT_EQ(std::isnan(values[static_cast<size_t>(i)]), token < 2 || token > 4) << "token " << token;
  }
}

/// The rows of one sequence of `context` tokens, computed in chunks of `chunk` tokens.
std::vector<float> chunked(Backend& backend, const Shape& shape, int32_t context, int32_t chunk) {
  std::vector<float> rows;
  for (int32_t begin = 0; begin < context; begin += chunk) {
    const int32_t end = std::min(context, begin + chunk);
    // A shorter context's data is a prefix of a longer one's, so the seed identifies the sequence.
    const AttentionResult step = run_attention(backend, shape, {{end, end - begin}}, {5});
    rows.insert(rows.end(), step.out[0].begin(), step.out[0].end());
  }
  return rows;
}

TEST(Attention, GivesTheSameBitsHoweverThePromptIsChunked) {
  const auto backend = make_cpu_backend(2);
  for (const int32_t head_size : {20, 64}) {
    Shape shape;
    shape.head_size = head_size;
    const std::vector<float> whole = chunked(*backend, shape, 150, 150);
    for (const int32_t chunk : {1, 7, 16, 64}) {
      EXPECT_EQ(chunked(*backend, shape, 150, chunk), whole) << "chunks of " << chunk;
    }
  }
}

TEST(Attention, GivesTheSameBitsAloneAndInABatch) {
  const auto backend = make_cpu_backend(2);
  for (const int32_t group : {1, 4, 7}) {
    Shape shape;
    shape.heads = 2 * group;
    const std::vector<SequenceShape> sequences{{130, 1}, {40, 1}, {97, 33}, {1, 1}, {80, 80}, {300, 2}};
    const std::vector<uint64_t> names{1, 2, 3, 4, 5, 6};
    const AttentionResult together = run_attention(*backend, shape, sequences, names);
    for (size_t s = 0; s < sequences.size(); ++s) {
      EXPECT_EQ(run_attention(*backend, shape, {sequences[s]}, {names[s]}).out[0], together.out[s])
          << "sequence " << s;
    }
  }
}

TEST(Attention, GivesTheSameBitsForAnyBlocksAndThreads) {
  const auto one = make_cpu_backend(1);
  const std::vector<SequenceShape> sequences{{500, 1}, {97, 33}, {256, 1}};
  const std::vector<uint64_t> names{1, 2, 3};
  Shape shape;
  const AttentionResult expected = run_attention(*one, shape, sequences, names);
  for (const int32_t threads : {1, 2, 3}) {
    const auto backend = make_cpu_backend(threads);
    for (const int32_t block_size : {1, 8, 16, 32, 48}) {
      shape.block_size = block_size;
      shape.block_seed = static_cast<uint64_t>(block_size + threads);
      EXPECT_EQ(run_attention(*backend, shape, sequences, names).out, expected.out)
          << threads << " threads, blocks of " << block_size;
    }
  }
}

TEST(Attention, GivesTheSameBitsOnEveryInstructionSet) {
  const std::vector<SequenceShape> sequences{{130, 1}, {97, 33}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int32_t head_size : {64, 80, 20}) {
      Shape shape;
      shape.dtype = dtype;
      shape.head_size = head_size;
      const AttentionResult expected = run_attention(*make_cpu_backend(2), shape, sequences, {1, 2});
      for (const auto& isa : test::IsaScope::available()) {
        const test::IsaScope scope(isa);
        EXPECT_EQ(run_attention(*make_cpu_backend(2), shape, sequences, {1, 2}).out, expected.out) << isa;
      }
    }
  }
}

TEST(Attention, RefusesHeadsThatDoNotDivide) {
  const auto backend = make_cpu_backend(1);
  AttentionArgs args;
  args.heads = 3;
  args.kv.kv_heads = 2;
  EXPECT_THROW(backend->attention(0, ForwardBatch{}, args), Error);
}

}  // namespace
}  // namespace minfer
