#include <algorithm>

#include "kernels/cpu/ops.h"
#include "kernels/work.h"

// Cuts attention into tiles and spreads them over the threads. A tile: one sequence, one KV head, up to 64 of its query heads, and
// up to 64 rows (query tokens x heads). A tile reads its sequence's K and V of one head once; attention_lanes.h has the
// arithmetic.
namespace minfer::cpu {
namespace {

void check(const ForwardBatch& batch, const AttentionArgs& args) {
  const KvLayer& kv = args.kv;
  if (kv.kv_heads <= 0 || args.heads <= 0 || args.heads % kv.kv_heads != 0) {
    fail("attention: {} heads over {} KV heads, expected a multiple", args.heads, kv.kv_heads);
  }
  if (kv.dtype != DType::f32 && kv.dtype != DType::bf16 && kv.dtype != DType::f16) {
    fail("attention: KV cache of type {}, expected f32, bf16 or f16", name(kv.dtype));
  }
  const int64_t q_cols = int64_t{args.heads} * kv.head_size;
  const int64_t qkv_cols = q_cols + int64_t{kv.kv_heads} * (kv.head_size + kv.value_size());
  check_f32("attention: qkv", args.qkv, batch.num_tokens, args.qkv.cols == q_cols ? q_cols : qkv_cols);
  check_f32("attention: out", args.out, batch.num_tokens, int64_t{args.heads} * kv.value_size());
  if (args.window.keys < 0)
    fail("attention: a window of {} keys, expected 0 for none or more", args.window.keys);
  if (!(args.logit_cap >= 0.0f)) {
    fail("attention: logits capped at {}, expected 0 for no cap or more", args.logit_cap);
  }
  if (args.sinks) check_vector("attention: sinks", args.sinks, args.heads);
  if (args.chosen != nullptr &&
      (args.most_chosen < 1 || kv.kv_heads != 1 || args.window || args.logit_cap > 0.0f || args.sinks))
    fail("attention: {} chosen keys of {} KV heads, expected some of one, without window, cap and sinks",
         args.most_chosen, kv.kv_heads);
  if (args.first_sequence < 0 || args.num_sequences < 0 ||
      args.num_sequences > batch.num_sequences - args.first_sequence) {
    fail("attention: sequences from {}, {} of them, expected within {}", args.first_sequence,
         args.num_sequences, batch.num_sequences);
  }
}

/// Query tokens of one sequence that form a tile with each KV head.
struct QueryTile {
  int32_t sequence;
  int32_t first_token;
  int32_t tokens;
};

/// True if the token attends to chosen keys, not to all that it sees.
bool has_chosen(const ForwardBatch& batch, const AttentionArgs& args, int32_t token) {
  return args.chosen != nullptr && batch.positions[token] >= args.most_chosen;
}

/// Cuts all named sequences into tiles. The last tokens of a sequence come first: they read the most keys,
/// and a long tile that started late would leave the other threads idle. A token with chosen keys is a tile of its own.
int64_t cut(const ForwardBatch& batch, const AttentionArgs& args, int32_t tokens_per_tile, QueryTile* tiles) {
  int64_t count = 0;
  for (int32_t i = 0; i < args.num_sequences; ++i) {
    const int32_t sequence = args.first_sequence + i;
    const int32_t begin = batch.query_start[sequence];
    for (int32_t end = batch.query_start[sequence + 1]; end > begin;) {
      const int32_t tokens = has_chosen(batch, args, end - 1) ? 1 : std::min(tokens_per_tile, end - begin);
      end -= tokens;
      if (tiles != nullptr) tiles[count] = {sequence, end, tokens};
      ++count;
    }
  }
  return count;
}

/// The query heads of a KV head that a tile takes: all, or the next 64.
struct HeadParts {
  int32_t group;  ///< query heads of a KV head
  int32_t count;  ///< parts of a KV head

  explicit HeadParts(const AttentionArgs& args)
      : group(args.heads / args.kv.kv_heads), count((group + kQueryTileRows - 1) / kQueryTileRows) {}
  int32_t most_heads() const { return std::min(group, kQueryTileRows); }
};

/// `part` counts the parts of all KV heads.
AttentionTile make_tile(const ForwardBatch& batch, const AttentionArgs& args, const QueryTile& query,
                        const HeadParts& parts, int32_t part) {
  const int32_t kv_head = part / parts.count;
  const int32_t skipped = part % parts.count * kQueryTileRows;
  AttentionTile tile;
  tile.group = std::min(parts.group - skipped, kQueryTileRows);
  const int64_t first_head = int64_t{kv_head} * parts.group + skipped;
  tile.q = args.qkv.f32_row(query.first_token) + first_head * args.kv.head_size;
  tile.q_stride = args.qkv.stride;
  tile.out = args.out.f32_row(query.first_token) + first_head * args.kv.value_size();
  tile.out_stride = args.out.stride;
  tile.positions = batch.positions + query.first_token;
  tile.tokens = query.tokens;
  tile.scale = args.scale;
  tile.window = args.window;
  if (has_chosen(batch, args, query.first_token)) {
    tile.chosen = args.chosen + int64_t{query.first_token} * args.most_chosen;
    tile.num_chosen = args.most_chosen;
  }
  tile.logit_cap = args.logit_cap;
  if (args.sinks) tile.sinks = static_cast<const float*>(args.sinks.data) + first_head;
  tile.kv = &args.kv;
  tile.kv_head = kv_head;
  tile.blocks = batch.block_table + int64_t{query.sequence} * batch.max_blocks;
  return tile;
}

/// Elements of K that the tiles read: they decide whether waking threads pays.
int64_t elements_read(const ForwardBatch& batch, const AttentionArgs& args) {
  int64_t keys = 0;
  for (int32_t i = 0; i < args.num_sequences; ++i) {
    const int32_t sequence = args.first_sequence + i;
    const int32_t queries = batch.query_start[sequence + 1] - batch.query_start[sequence];
    keys += keys_read(batch.context_len[sequence], queries, args.window);
  }
  return keys * args.kv.kv_heads * args.kv.head_size;
}

}  // namespace

void attention(const ForwardBatch& batch, const AttentionArgs& args, const OpContext& context) {
  check(batch, args);
  const HeadParts parts(args);
  const int32_t tokens_per_tile = kQueryTileRows / parts.most_heads();
  const int64_t num_tiles = cut(batch, args, tokens_per_tile, nullptr);
  const int64_t tile_bytes = Workspace::aligned(num_tiles * static_cast<int64_t>(sizeof(QueryTile)));
  const int64_t scratch_floats = attention_scratch_floats(args.kv.head_size, args.kv.value_size());
  const int32_t num_parts = args.kv.kv_heads * parts.count;
  const int64_t items = num_tiles * num_parts;
  const int64_t pieces = elements_read(batch, args) < kMinParallelElements ? 1 : items;
  auto* memory = static_cast<char*>(context.workspace->take(static_cast<size_t>(
      tile_bytes + context.pool->threads() * scratch_floats * static_cast<int64_t>(sizeof(float)))));
  auto* tiles = reinterpret_cast<QueryTile*>(memory);
  auto* scratch = reinterpret_cast<float*>(memory + tile_bytes);
  cut(batch, args, tokens_per_tile, tiles);

  context.pool->parallel_for(pieces, [&](int64_t piece, int32_t thread) {
    const IndexRange range = part_of(items, piece, pieces);
    for (int64_t item = range.begin; item < range.end; ++item) {
      const QueryTile& query = tiles[item / num_parts];
      AttentionTile tile = make_tile(batch, args, query, parts, static_cast<int32_t>(item % num_parts));
      tile.scratch = scratch + thread * scratch_floats;
      context.lanes->attend(tile);
    }
  });
}

}  // namespace minfer::cpu
