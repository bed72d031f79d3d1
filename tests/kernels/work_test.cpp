#include "kernels/work.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "kernels/tensor_view.h"

namespace minfer {
namespace {

/// Two sequences decode a token each at contexts 10 and 20; one prefills 8 tokens behind 4 cached ones.
BatchShape mixed_step() {
  BatchShape shape;
  shape.decode_sequences = 2;
  shape.prefill_sequences = 1;
  shape.decode_tokens = 2;
  shape.prefill_tokens = 8;
  shape.decode_logit_rows = 2;
  shape.prefill_logit_rows = 1;
  shape.decode_context = 30;
  shape.prefill_context = 12;
  shape.decode_attended = 30;
  shape.prefill_attended = 5 + 6 + 7 + 8 + 9 + 10 + 11 + 12;
  return shape;
}

OpInfo op(OpKind kind, TokenScope scope = TokenScope::all) {
  OpInfo info;
  info.kind = kind;
  info.scope = scope;
  return info;
}

void expect_work(const OpInfo& info, int64_t bytes_read, int64_t bytes_written, int64_t flops) {
  const KernelWork work = op_work(info, mixed_step());
  EXPECT_EQ(work.bytes_read, bytes_read);
  EXPECT_EQ(work.bytes_written, bytes_written);
  EXPECT_EQ(work.flops, flops);
}

TEST(Work, EmbedReadsOneTableRowAToken) {
  OpInfo info = op(OpKind::embed);
  info.in_features = info.out_features = 64;
  info.weight_bytes = 68;  // 64 elements of q8_0
  expect_work(info, 10 * 68 + 10 * 4, 10 * 64 * 4, 0);
}

TEST(Work, NormReadsItsWeightOnce) {
  OpInfo info = op(OpKind::rms_norm);
  info.in_features = info.out_features = 64;
  info.weight_bytes = 256;
  expect_work(info, 10 * 64 * 4 + 256, 10 * 64 * 4, 4 * 10 * 64);
}

TEST(Work, LinearStreamsWeightsOnceWhateverTheTokens) {
  OpInfo info = op(OpKind::linear);
  info.in_features = 64;
  info.out_features = 96;
  info.weight_bytes = 1000;
  expect_work(info, 1000 + 10 * 64 * 4, 10 * 96 * 4, 2 * 10 * 64 * 96);
  info.add_to_out = true;
  expect_work(info, 1000 + 10 * 64 * 4 + 10 * 96 * 4, 10 * 96 * 4, 2 * 10 * 64 * 96);
  info.in_element_bytes = 2;
  info.out_element_bytes = 2;
  expect_work(info, 1000 + 10 * 64 * 2 + 10 * 96 * 2, 10 * 96 * 2, 2 * 10 * 64 * 96);
}

TEST(Work, LogitScopeCountsLogitRows) {
  OpInfo info = op(OpKind::linear, TokenScope::logits);
  info.in_features = 64;
  info.out_features = 512;
  info.weight_bytes = 1000;
  expect_work(info, 1000 + 3 * 64 * 4, 3 * 512 * 4, 2 * 3 * 64 * 512);
}

TEST(Work, GateUpHasTwoProducts) {
  OpInfo info = op(OpKind::gate_up_swiglu);
  info.in_features = 64;
  info.out_features = 128;
  info.weight_bytes = 5000;
  expect_work(info, 5000 + 10 * 64 * 4, 10 * 128 * 4, 4 * 10 * 64 * 128);
}

TEST(Work, RopeWritesQueriesAndCache) {
  OpInfo info = op(OpKind::rope_kv_write);
  info.heads = 4;
  info.kv_heads = 2;
  info.head_size = 16;
  info.kv_dtype = DType::bf16;
  // Reads 8 heads, the position's cosines and sines, its slot; writes 4 heads of q and 2 of K and V.
  expect_work(info, 10 * (8 * 16 * 4 + 16 * 4 + 4), 10 * (4 * 16 * 4 + 2 * 2 * 16 * 2),
              10 * 3 * (4 + 2) * 16);
}

TEST(Work, AttentionReadsTheContextOnceASequenceAndScope) {
  OpInfo info = op(OpKind::attention, TokenScope::decode);
  info.heads = 4;
  info.kv_heads = 2;
  info.head_size = 16;
  info.kv_dtype = DType::f16;
  expect_work(info, 2 * 64 * 4 + 2 * 30 * 32 * 2, 2 * 64 * 4, 4 * 64 * 30);
  info.scope = TokenScope::prefill;
  expect_work(info, 8 * 64 * 4 + 2 * 12 * 32 * 2, 8 * 64 * 4, 4 * 64 * 68);
  info.scope = TokenScope::all;
  expect_work(info, 10 * 64 * 4 + 2 * 42 * 32 * 2, 10 * 64 * 4, 4 * 64 * 98);
}

TEST(Work, RopeRotatesAPartOfAHeadAndWritesValuesOfAnotherSize) {
  OpInfo info = op(OpKind::rope_kv_write);
  info.heads = 4;
  info.kv_heads = 2;
  info.head_size = 16;
  info.v_head_size = 24;
  info.rotary_size = 8;
  info.kv_dtype = DType::bf16;
  expect_work(info, 10 * ((6 * 16 + 2 * 24) * 4 + 8 * 4 + 4), 10 * (4 * 16 * 4 + 2 * (16 + 24) * 2),
              10 * 3 * (4 + 2) * 8);
}

TEST(Work, RopeReadsNoValuesThatAreKeys) {
  OpInfo info = op(OpKind::rope_kv_write);
  info.heads = 4;
  info.kv_heads = 2;
  info.head_size = 16;
  info.v_is_k = true;
  info.kv_dtype = DType::bf16;
  expect_work(info, 10 * (6 * 16 * 4 + 16 * 4 + 4), 10 * (4 * 16 * 4 + 2 * 2 * 16 * 2),
              10 * 3 * (4 + 2) * 16);
}

TEST(Work, AttentionOfValuesOfAnotherSize) {
  OpInfo info = op(OpKind::attention, TokenScope::decode);
  info.heads = 4;
  info.kv_heads = 2;
  info.head_size = 16;
  info.v_head_size = 24;
  info.kv_dtype = DType::f16;
  expect_work(info, 2 * 64 * 4 + 30 * 2 * (16 + 24) * 2, 2 * 96 * 4, 2 * (64 + 96) * 30);
}

TEST(Work, LatentAttentionReadsOneRowAToken) {
  OpInfo info = op(OpKind::attention, TokenScope::decode);
  info.heads = 4;
  info.kv_heads = 1;
  info.head_size = 24;
  info.v_head_size = 16;
  info.v_in_k = true;
  info.kv_dtype = DType::bf16;
  expect_work(info, 2 * 96 * 4 + 30 * 24 * 2, 2 * 64 * 4, 2 * (96 + 64) * 30);
  info.kind = OpKind::latent_kv_write;
  info.scope = TokenScope::all;
  info.rotary_size = 8;
  expect_work(info, 10 * ((4 * 8 + 24) * 4 + 8 * 4 + 4), 10 * (4 * 8 * 4 + 24 * 2),
              10 * (3 * (4 * 8 + 8) + 4 * 16));
}

/// Every head has its own matrix, and all are read.
TEST(Work, ProductsOfHeads) {
  OpInfo info = op(OpKind::head_linear);
  info.heads = 4;
  info.in_features = 4 * 8;
  info.out_features = 4 * 16;
  const Weight weight{&info, DType::bf16, 4, 16, 8};
  set_weights(info, {&weight, 1});
  EXPECT_EQ(info.weight_bytes, 4 * 16 * 8 * 2);
  expect_work(info, 4 * 16 * 8 * 2 + 10 * 4 * 8 * 4, 10 * 4 * 16 * 4, 10 * 4 * 2 * 16 * 8);
}

/// (query, key) pairs and keys read, counted one by one.
TEST(Work, CountsTheKeysOfWindows) {
  for (const AttentionWindow window :
       {AttentionWindow{}, {1}, {3}, {7}, {100}, {1, true}, {3, true}, {7, true}, {100, true}}) {
    for (int32_t context = 1; context < 20; ++context) {
      for (int32_t queries = 1; queries <= context; ++queries) {
        int64_t pairs = 0, first_read = context;
        for (int64_t position = context - queries; position < context; ++position) {
          int64_t first = window ? std::max<int64_t>(0, position - window.keys + 1) : 0;
          if (window.chunked) first = position / window.keys * window.keys;
          pairs += position + 1 - first;
          first_read = std::min(first_read, first);
        }
        EXPECT_EQ(keys_attended(context, queries, window), pairs)
            << window.keys << ", " << window.chunked << ", " << context << ", " << queries;
        EXPECT_EQ(keys_read(context, queries, window), context - first_read)
            << window.keys << ", " << window.chunked << ", " << context << ", " << queries;
      }
    }
  }
}

TEST(Work, AttentionReadsItsWindow) {
  BatchShape shape;
  shape.windows[0].window = 6;
  shape.windows[1].window = 15;
  shape.add_sequence(true, 10, 1, 1);
  shape.add_sequence(true, 20, 1, 1);
  shape.add_sequence(false, 12, 8, 1);
  const BatchShape full = mixed_step();
  EXPECT_EQ(shape.decode_tokens, full.decode_tokens);
  EXPECT_EQ(shape.prefill_tokens, full.prefill_tokens);
  EXPECT_EQ(shape.logit_rows(), full.logit_rows());
  EXPECT_EQ(shape.decode_context, full.decode_context);
  EXPECT_EQ(shape.prefill_context, full.prefill_context);
  EXPECT_EQ(shape.decode_attended, full.decode_attended);
  EXPECT_EQ(shape.prefill_attended, full.prefill_attended);
  OpInfo info = op(OpKind::attention);
  info.heads = 4;
  info.kv_heads = 2;
  info.head_size = 16;
  info.kv_dtype = DType::f16;
  const auto work = [&](TokenScope scope, int32_t window) {
    info.scope = scope;
    info.window = window;
    return op_work(info, shape);
  };
  EXPECT_EQ(work(TokenScope::decode, 6).bytes_read, 2 * 64 * 4 + 2 * (6 + 6) * 32 * 2);
  EXPECT_EQ(work(TokenScope::decode, 15).bytes_read, 2 * 64 * 4 + 2 * (10 + 15) * 32 * 2);
  EXPECT_EQ(work(TokenScope::decode, 15).flops, 4 * 64 * (10 + 15));
  EXPECT_EQ(work(TokenScope::prefill, 6).bytes_read, 8 * 64 * 4 + 2 * 12 * 32 * 2);
  EXPECT_EQ(work(TokenScope::prefill, 6).flops, 4 * 64 * (5 + 7 * 6));
  EXPECT_EQ(work(TokenScope::all, 6).flops, 4 * 64 * (12 + 5 + 7 * 6));
  // The most that it can be, for a window that the step was not counted for.
  EXPECT_EQ(work(TokenScope::decode, 9).flops, 4 * 64 * (9 + 9));
  EXPECT_EQ(work(TokenScope::decode, 9).bytes_read, 2 * 64 * 4 + 2 * 18 * 32 * 2);
  EXPECT_EQ(work(TokenScope::decode, 1000).flops, work(TokenScope::decode, 0).flops);
}

TEST(Work, MoeRouteWritesIdsAndWeights) {
  OpInfo info = op(OpKind::moe_route);
  info.experts = 16;
  info.experts_used = 2;
  expect_work(info, 10 * 16 * 4, 10 * 2 * 8, 3 * 10 * 16);
}

TEST(Work, MoeReadsTheExpertsThatTokensCanChoose) {
  OpInfo info = op(OpKind::moe_gate_up_swiglu);
  info.in_features = 64;
  info.out_features = 32;
  info.weight_bytes = 700;
  info.experts = 16;
  info.experts_used = 2;
  expect_work(info, 16 * 700 + 10 * 64 * 4 + 20 * 4, 20 * 32 * 4, 4 * 20 * 64 * 32);
  info.scope = TokenScope::decode;  // 2 tokens of 2 experts: 4 of the 16
  expect_work(info, 4 * 700 + 2 * 64 * 4 + 4 * 4, 4 * 32 * 4, 4 * 4 * 64 * 32);

  OpInfo down = op(OpKind::moe_down);
  down.in_features = 32;
  down.out_features = 64;
  down.weight_bytes = 350;
  down.experts = 16;
  down.experts_used = 2;
  expect_work(down, 16 * 350 + 20 * 32 * 4 + 20 * 8 + 10 * 64 * 4, 10 * 64 * 4, 2 * 20 * 32 * 64);
}

TEST(Work, MoeReadsTheExpertsThatWereChosen) {
  OpInfo info = op(OpKind::moe_gate_up_swiglu);
  info.in_features = 64;
  info.out_features = 32;
  info.weight_bytes = 700;
  info.experts = 16;
  info.experts_used = 2;
  const KernelWork most = op_work(info, mixed_step());
  const auto saved = [&](int32_t experts_read) {
    const KernelWork work = op_work(info, mixed_step(), experts_read);
    EXPECT_EQ(work.bytes_written, most.bytes_written);
    EXPECT_EQ(work.flops, most.flops);
    return most.bytes_read - work.bytes_read;
  };
  EXPECT_EQ(saved(-1), 0);
  EXPECT_EQ(saved(16), 0);
  EXPECT_EQ(saved(5), 11 * 700);
  EXPECT_EQ(saved(0), 16 * 700);
  EXPECT_EQ(saved(1000), 0);  // no more than there are
}

TEST(Work, GatherAndSampleCountLogitRows) {
  OpInfo gather = op(OpKind::gather, TokenScope::logits);
  gather.in_features = gather.out_features = 64;
  expect_work(gather, 3 * 64 * 4 + 3 * 4, 3 * 64 * 4, 0);
  OpInfo sample = op(OpKind::sample, TokenScope::logits);
  sample.in_features = 512;
  expect_work(sample, 3 * 512 * 4, 3 * 4, 3 * 3 * 512);
}

TEST(Work, AnOpWithoutTokensDoesNothing) {
  OpInfo info = op(OpKind::linear, TokenScope::prefill);
  info.in_features = 64;
  info.out_features = 96;
  info.weight_bytes = 1000;
  BatchShape decode_only;
  decode_only.decode_tokens = 4;
  const KernelWork work = op_work(info, decode_only);
  EXPECT_EQ(work.bytes(), 0);
  EXPECT_EQ(work.flops, 0);
}

}  // namespace
}  // namespace minfer
