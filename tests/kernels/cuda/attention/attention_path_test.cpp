#include "kernels/cuda/attention/shared/attention_path.h"

#include <utility>

#include <gtest/gtest.h>

namespace minfer::cuda {
namespace {

constexpr DeviceFacts kDevice{.has_wgmma = false, .shared_bytes = 163 << 10};
constexpr DeviceFacts kHopper{.has_wgmma = true, .shared_bytes = 227 << 10};

/// A step of 3 decoding sequences and 2 that prefill 50 tokens.
ForwardBatch make_batch() {
  ForwardBatch batch;
  batch.num_tokens = 53;
  batch.num_sequences = 5;
  batch.num_decode_sequences = batch.num_decode_tokens = 3;
  return batch;
}

AttentionArgs make_args(int32_t first_sequence, int32_t num_sequences) {
  AttentionArgs args;
  args.qkv.dtype = args.out.dtype = args.kv.dtype = DType::bf16;
  args.qkv.stride = 6144;
  args.out.stride = 4096;
  args.heads = 32;
  args.scale = 0.1f;
  args.kv.kv_heads = 8;
  args.kv.head_size = 128;
  args.kv.block_size = 16;
  args.kv.num_blocks = 1000;
  args.first_sequence = first_sequence;
  args.num_sequences = num_sequences;
  return args;
}

TEST(AttentionPath, DecodesWhereEverySequenceBringsOneToken) {
  ForwardBatch batch = make_batch();
  EXPECT_EQ(choose_attention_path(batch, make_args(0, 3), kDevice), AttentionPath::decode);
  EXPECT_EQ(choose_attention_path(batch, make_args(0, 2), kDevice), AttentionPath::prefill);
  EXPECT_EQ(choose_attention_path(batch, make_args(3, 2), kDevice), AttentionPath::prefill);
  batch.num_decode_tokens = 5;
  EXPECT_EQ(choose_attention_path(batch, make_args(0, 3), kDevice), AttentionPath::prefill);
}

AttentionArgs make_latent_args() {
  AttentionArgs args = make_args(0, 3);
  args.heads = 16;
  args.qkv.stride = 16 * 576;
  args.out.stride = 16 * 512;
  args.kv.kv_heads = 1;
  args.kv.head_size = 576;
  args.kv.v_head_size = 512;
  args.kv.v_in_k = true;
  return args;
}

TEST(AttentionPath, ValuesWithinKeysHaveAKernelOfTheirOwn) {
  ForwardBatch batch = make_batch();
  const auto path = [&](auto change, const DeviceFacts& device = kHopper) {
    AttentionArgs args = make_latent_args();
    change(args);
    return choose_attention_path(batch, args, device);
  };
  EXPECT_EQ(path([](AttentionArgs&) {}), AttentionPath::latent);
  EXPECT_EQ(path([](AttentionArgs& a) { a.first_sequence = 3, a.num_sequences = 2; }), AttentionPath::latent);
  EXPECT_EQ(path([](AttentionArgs& a) { a.heads = 128; }), AttentionPath::latent);
  EXPECT_EQ(path([](AttentionArgs& a) { a.kv.dtype = DType::f16; }), AttentionPath::latent);
  EXPECT_EQ(path([](AttentionArgs&) {}, kDevice), AttentionPath::general) << "shared memory";
  EXPECT_EQ(path([](AttentionArgs& a) { a.kv.dtype = DType::f8_e4m3; }), AttentionPath::general);
  EXPECT_EQ(path([](AttentionArgs& a) { a.qkv.dtype = a.out.dtype = DType::f32; }), AttentionPath::general);
  EXPECT_EQ(path([](AttentionArgs& a) { a.kv.head_size = 128, a.kv.v_head_size = 64; }),
            AttentionPath::general);
  EXPECT_EQ(path([](AttentionArgs& a) { a.window = 9; }), AttentionPath::general);
  EXPECT_EQ(path([](AttentionArgs& a) { a.qkv.stride += 4; }), AttentionPath::general);
}

TEST(LatentPlan, HasATileForAllRowsAndRoomForItsParts) {
  constexpr int32_t kSms = 132;
  for (const int32_t heads : {1, 16, 20, 128}) {
    for (const int32_t sequences : {1, 3, 64, 500}) {
      for (const int32_t tokens_each : {1, 4, 700}) {
        for (const int64_t context : {16, 1000, 200000}) {
          const LatentPlan plan = LatentPlan::of(sequences * tokens_each, sequences, heads, context, kSms);
          const int64_t rows = int64_t{tokens_each} * heads;
          const int64_t needed = sequences * ((rows + plan.rows - 1) / plan.rows);
          EXPECT_GE(plan.tiles, needed) << heads << ", " << sequences << " x " << tokens_each;
          EXPECT_TRUE(plan.tiles_of_a_sequence == 0 || plan.tiles == needed);
          EXPECT_LE(plan.partial_rows(), LatentPlan::most_partial_rows(kSms));
          EXPECT_LE((plan.splits - 1) * int64_t{kLatentKeys}, context);
        }
      }
    }
  }
  EXPECT_EQ(LatentPlan::of(1, 1, 16, 8192, kSms).splits, 64);
  EXPECT_EQ(LatentPlan::of(64, 64, 16, 8192, kSms).splits, 2);
  EXPECT_EQ(LatentPlan::of(64, 64, 16, 8192, kSms).rows, 16);
  EXPECT_EQ(LatentPlan::of(2048, 1, 16, 8192, kSms).rows, 64);
}

TEST(AttentionPath, IsGeneralForWhatTheFastKernelsDoNotTake) {
  const ForwardBatch batch = make_batch();
  const auto path = [&](auto change) {
    AttentionArgs args = make_args(0, 3);
    change(args);
    return choose_attention_path(batch, args, kDevice);
  };
  EXPECT_EQ(path([](AttentionArgs&) {}), AttentionPath::decode);
  EXPECT_EQ(path([](AttentionArgs& a) { a.kv.head_size = 64; }), AttentionPath::decode);
  EXPECT_EQ(path([](AttentionArgs& a) { a.kv.dtype = DType::f8_e4m3; }), AttentionPath::decode);
  EXPECT_EQ(path([](AttentionArgs& a) { a.kv.dtype = DType::f16; }), AttentionPath::decode);
  EXPECT_EQ(path([](AttentionArgs& a) { a.kv.dtype = DType::f32; }), AttentionPath::general);
  EXPECT_EQ(path([](AttentionArgs& a) { a.kv.head_size = 32; }), AttentionPath::general);
  EXPECT_EQ(path([](AttentionArgs& a) { a.kv.v_head_size = 64; }), AttentionPath::general);
  EXPECT_EQ(path([](AttentionArgs& a) { a.kv.v_head_size = 128; }), AttentionPath::decode);
  EXPECT_EQ(path([](AttentionArgs& a) { a.qkv.dtype = a.out.dtype = DType::f32; }), AttentionPath::general);
  EXPECT_EQ(path([](AttentionArgs& a) { a.qkv.stride = 6145; }), AttentionPath::general);
  EXPECT_EQ(path([](AttentionArgs& a) { a.heads = 129 * a.kv.kv_heads; }), AttentionPath::general);
  EXPECT_EQ(path([](AttentionArgs& a) { a.kv.num_blocks = 1 << 28; }), AttentionPath::general);
}

TEST(AttentionPath, IsOnTensorCoresOfEveryDeviceThatABuildIsFor) {
  const ForwardBatch batch = make_batch();
  const auto paths = [&](int64_t shared_bytes, bool has_wgmma, int32_t needed) {
    const DeviceFacts device{.has_wgmma = has_wgmma, .shared_bytes = shared_bytes};
    return std::pair(choose_attention_path(batch, make_args(0, 3), device, needed),
                     choose_attention_path(batch, make_args(3, 2), device, needed));
  };
  constexpr int32_t kLarge = 116 << 10, kSmall = 99 << 10;
  const std::pair general(AttentionPath::general, AttentionPath::general);
  const std::pair portable(AttentionPath::decode, AttentionPath::prefill);
  for (const int32_t needed : {kLarge, kSmall}) {
    EXPECT_EQ(paths(163 << 10, false, needed), portable) << "8.0";
    EXPECT_EQ(paths(227 << 10, false, needed), portable) << "10.0, and 9.0 without code for sm_90a";
    EXPECT_EQ(paths(227 << 10, true, needed), std::pair(AttentionPath::decode, AttentionPath::prefill_wgmma));
  }
  EXPECT_EQ(paths(99 << 10, false, kSmall), portable) << "8.6, 8.9, 12.0";
  EXPECT_EQ(paths(99 << 10, false, kLarge), general);
}

TEST(AttentionPath, PrefillsOnHopperByWarpgroups) {
  const ForwardBatch batch = make_batch();
  AttentionArgs args = make_args(3, 2);
  EXPECT_EQ(choose_attention_path(batch, args, kHopper), AttentionPath::prefill_wgmma);
  EXPECT_EQ(choose_attention_path(batch, make_args(0, 3), kHopper), AttentionPath::decode);
  args.kv.dtype = DType::f16;
  EXPECT_EQ(choose_attention_path(batch, args, kHopper), AttentionPath::prefill_wgmma);
  args.kv.dtype = DType::f8_e4m3;
  EXPECT_EQ(choose_attention_path(batch, args, kHopper), AttentionPath::prefill_wgmma);
}

TEST(AttentionPath, TakesTheHeadSizesOfModels) {
  const ForwardBatch batch = make_batch();
  for (const int32_t head_size : {64, 80, 96, 128, 192, 256}) {
    for (const DType kv : {DType::bf16, DType::f16, DType::f8_e4m3}) {
      AttentionArgs decode = make_args(0, 3), prefill = make_args(3, 2);
      for (AttentionArgs* args : {&decode, &prefill}) {
        args->kv.head_size = head_size;
        args->kv.dtype = kv;
      }
      EXPECT_EQ(choose_attention_path(batch, decode, kHopper), AttentionPath::decode) << head_size;
      EXPECT_EQ(choose_attention_path(batch, prefill, kHopper), AttentionPath::prefill_wgmma) << head_size;
      EXPECT_EQ(choose_attention_path(batch, decode, kDevice), AttentionPath::decode) << head_size;
      EXPECT_EQ(choose_attention_path(batch, prefill, kDevice),
                head_size == 64 || head_size == 128 ? AttentionPath::prefill : AttentionPath::general)
          << head_size;
    }
  }
}

TEST(AttentionPath, HeadsOf512NeedTheSharedMemoryOfAWholeMultiprocessor) {
  const ForwardBatch batch = make_batch();
  const auto paths = [&](auto change, const DeviceFacts& device = kHopper) {
    AttentionArgs decode = make_args(0, 3), prefill = make_args(3, 2);
    for (AttentionArgs* args : {&decode, &prefill}) {
      args->heads = 32;
      args->kv.kv_heads = 4;
      args->kv.head_size = 512;
      change(*args);
    }
    return std::pair(choose_attention_path(batch, decode, device),
                     choose_attention_path(batch, prefill, device));
  };
  const std::pair wide(AttentionPath::decode, AttentionPath::prefill_wide);
  const std::pair general(AttentionPath::general, AttentionPath::general);
  for (const DType kv : {DType::bf16, DType::f16, DType::f8_e4m3})
    EXPECT_EQ(paths([&](AttentionArgs& a) { a.kv.dtype = kv; }), wide);
  EXPECT_EQ(paths([](AttentionArgs& a) { a.window = 128, a.logit_cap = 50.0f; }), wide);
  EXPECT_EQ(paths([](AttentionArgs& a) { a.kv.block_size = 12; }), wide);
  EXPECT_EQ(paths([](AttentionArgs&) {}, {.shared_bytes = 227 << 10}), wide) << "10.0";
  EXPECT_EQ(paths([](AttentionArgs&) {}, kDevice), general);
  EXPECT_EQ(paths([](AttentionArgs& a) { a.heads = 65 * a.kv.kv_heads; }), general) << "a tile has 64 rows";
  EXPECT_EQ(paths([](AttentionArgs& a) { a.kv.head_size = 384; }), general);
}

TEST(AttentionPath, CopiesKeysInBoxesThatBlocksAndStagesHaveWhole) {
  for (const int32_t head_size : {64, 80, 96, 128, 192, 256}) {
    for (const bool is_fp8 : {false, true}) {
      for (const int32_t block_size : {8, 16, 24, 32, 48, 64, 80, 128, 192, 1024}) {
        const int32_t keys = keys_of_box(block_size, head_size, is_fp8);
        EXPECT_EQ(block_size % keys, 0) << block_size;
        EXPECT_EQ(keys_of_stage(head_size, is_fp8) % keys, 0) << block_size;
        EXPECT_EQ(keys % 8, 0) << block_size;
        EXPECT_LE(keys_of_stage(head_size, is_fp8) / keys, 32) << "a lane each";
      }
    }
  }
  EXPECT_EQ(keys_of_box(16, 128, false), 16);
  EXPECT_EQ(keys_of_box(1024, 128, false), 128);
  EXPECT_EQ(keys_of_box(64, 256, false), 16);
  EXPECT_EQ(keys_of_box(64, 256, true), 64);
}

TEST(AttentionPath, OptionsTakeNoOtherPath) {
  const ForwardBatch batch = make_batch();
  const float sink = 0.0f;
  AttentionArgs decode = make_args(0, 3), prefill = make_args(3, 2);
  for (AttentionArgs* args : {&decode, &prefill}) {
    args->window = 128;
    args->logit_cap = 50.0f;
    args->sinks = {.data = &sink, .rows = 1, .cols = 32};
  }
  EXPECT_EQ(choose_attention_path(batch, decode, kHopper), AttentionPath::decode);
  EXPECT_EQ(choose_attention_path(batch, prefill, kHopper), AttentionPath::prefill_wgmma);
  EXPECT_EQ(choose_attention_path(batch, prefill, kDevice), AttentionPath::prefill);
}

TEST(AttentionPath, PrefillsByWarpgroupsFromBlocksThatFitBoxes) {
  const ForwardBatch batch = make_batch();
  AttentionArgs args = make_args(3, 2);
  for (const int32_t block_size : {8, 16, 24, 32, 48, 64, 128, 136, 192, 256, 384, 1024}) {
    args.kv.block_size = block_size;
    EXPECT_EQ(choose_attention_path(batch, args, kHopper), AttentionPath::prefill_wgmma) << block_size;
  }
  for (const int32_t block_size : {1, 4, 12, 20, 100}) {
    args.kv.block_size = block_size;
    EXPECT_EQ(choose_attention_path(batch, args, kHopper), AttentionPath::prefill) << block_size;
  }
}

TEST(AttentionPath, BoundsTheTokensOfARange) {
  const ForwardBatch batch = make_batch();
  EXPECT_EQ(max_query_tokens(batch, make_args(0, 3)), 3);
  EXPECT_EQ(max_query_tokens(batch, make_args(3, 2)), 50);
  EXPECT_EQ(max_query_tokens(batch, make_args(4, 1)), 50);
  EXPECT_EQ(max_query_tokens(batch, make_args(0, 5)), 53);
}

}  // namespace
}  // namespace minfer::cuda
