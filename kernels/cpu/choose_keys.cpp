#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cpu/ops.h"

// Scores all keys that a query sees, and selects those with the largest scores (ChooseKeysArgs). Scores of some queries at a time are kept,
// a part of a query's keys for each thread; then a thread selects a query's keys. key_score_lanes.h has the arithmetic.
namespace minfer::cpu {
namespace {

/// Scores that are kept at a time, unless a single query has more.
constexpr int64_t kMostScores = int64_t{1} << 20;
/// Keys of a query that a thread scores at a time.
constexpr int32_t kKeysOfPart = 16 * kKeyTile;

void check(const ForwardBatch& batch, const ChooseKeysArgs& args) {
  const KvLayer& keys = args.keys;
  if (keys.kv_heads != 1 || args.heads < 1 || args.most < 1)
    fail("choose_keys: {} keys by {} heads over {} KV heads, expected 1 or more over one", args.most,
         args.heads, keys.kv_heads);
  if (keys.dtype != DType::f32 && keys.dtype != DType::bf16 && keys.dtype != DType::f16)
    fail("choose_keys: KV cache of type {}, expected f32, bf16 or f16", name(keys.dtype));
  check_f32("choose_keys: q", args.q, batch.num_tokens, int64_t{args.heads} * keys.head_size);
  check_f32("choose_keys: weights", args.weights, batch.num_tokens, args.heads);
}

/// A token that sees more keys than it attends to.
struct Query {
  int32_t token;
  int32_t sequence;
  int32_t keys;
  int64_t scores;  ///< of the kept ones, its first
};

/// Gives the queries behind `next`, as far as their scores fit, and moves `next`. `queries`: room for all tokens.
int64_t take_queries(const ForwardBatch& batch, const ChooseKeysArgs& args, Query& next, Query* queries) {
  int64_t count = 0;
  next.scores = 0;
  for (; next.token < batch.num_tokens; ++next.token) {
    while (batch.query_start[next.sequence + 1] <= next.token)
      ++next.sequence;
    next.keys = batch.positions[next.token] + 1;
    if (next.keys <= args.most) continue;
    if (count > 0 && next.scores + next.keys > kMostScores) break;
    queries[count++] = next;
    next.scores += next.keys;
  }
  return count;
}

/// Ranks keys by their scores, then by their positions. No two are equal, whatever the scores.
uint64_t rank_of(float score, int32_t position) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // zeros of one sign
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ascending} << 32 | (std::numeric_limits<uint32_t>::max() - static_cast<uint32_t>(position));
}

void select_keys(const float* scores, int32_t keys, int32_t most, uint64_t* ranks, int32_t* chosen) {
  for (int32_t position = 0; position < keys; ++position)
    ranks[position] = rank_of(scores[position], position);
  std::nth_element(ranks, ranks + most - 1, ranks + keys, std::greater<>());
  for (int32_t i = 0; i < most; ++i)
    chosen[i] = static_cast<int32_t>(std::numeric_limits<uint32_t>::max() - static_cast<uint32_t>(ranks[i]));
  std::sort(chosen, chosen + most);
}

}  // namespace

void choose_keys(const ForwardBatch& batch, const ChooseKeysArgs& args, const OpContext& context) {
  check(batch, args);
  const int64_t longest =
      batch.num_tokens == 0 ? 0 : *std::max_element(batch.positions, batch.positions + batch.num_tokens) + 1;
  if (longest <= args.most) return;
  const int64_t threads = context.pool->threads(),
                scratch = attention_scratch_floats(args.keys.head_size, args.keys.head_size);
  const int64_t query_bytes = Workspace::aligned(batch.num_tokens * int64_t{sizeof(Query)}),
                score_bytes = Workspace::aligned(std::max(longest, kMostScores) * int64_t{sizeof(float)}),
                thread_bytes = Workspace::aligned(
                    std::max(scratch * int64_t{sizeof(float)}, longest * int64_t{sizeof(uint64_t)}));
  auto* memory = static_cast<char*>(
      context.workspace->take(static_cast<size_t>(query_bytes + score_bytes + threads * thread_bytes)));
  auto* queries = reinterpret_cast<Query*>(memory);
  auto* scores = reinterpret_cast<float*>(memory + query_bytes);
  char* of_threads = memory + query_bytes + score_bytes;

  Query next{};
  while (const int64_t count = take_queries(batch, args, next, queries)) {
    const int64_t parts = (longest + kKeysOfPart - 1) / kKeysOfPart;
    const int64_t kept = queries[count - 1].scores + queries[count - 1].keys;
    for_each_part(count * parts, kept * args.keys.head_size, context, [&](int64_t i, int32_t thread) {
      const Query& query = queries[i / parts];
      const auto begin = static_cast<int32_t>(i % parts) * kKeysOfPart;
      if (begin >= query.keys) return;
      context.lanes->score_keys(
          {.query = {.q = args.q.f32_row(query.token),
                     .scale = args.scale,
                     .kv = &args.keys,
                     .blocks = batch.block_table + int64_t{query.sequence} * batch.max_blocks,
                     .scratch = reinterpret_cast<float*>(of_threads + thread * thread_bytes)},
           .heads = args.heads,
           .weights = args.weights.f32_row(query.token),
           .begin = begin,
           .end = std::min(begin + kKeysOfPart, query.keys),
           .scores = scores + query.scores + begin});
    });
    for_each_part(count, kept, context, [&](int64_t i, int32_t thread) {
      select_keys(scores + queries[i].scores, queries[i].keys, args.most,
                  reinterpret_cast<uint64_t*>(of_threads + thread * thread_bytes),
                  args.chosen + int64_t{queries[i].token} * args.most);
    });
  }
}

}  // namespace minfer::cpu
