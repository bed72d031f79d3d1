#pragma once

#include <cmath>

#include "kernels/cuda/attention/prefill/wgmma_copies.cuh"
#include "kernels/cuda/attention/shared/attention_tiles.cuh"
#include "kernels/cuda/ptx/fp8_group.cuh"

/// The work of the warpgroups of attention_prefill_wgmma.cuh that multiply.
namespace minfer::cuda {

/// A warpgroup's 64 rows of a tile: a lane of a warp has rows lane / 4 and + 8 of the warp's 16.
template <class Form>
struct WgmmaConsumer {
  using Shared = WgmmaShared<Form>;
  using Kv = typename Form::Kv;
  static constexpr bool kOptions = kHasOptions<typename Form::Params>;
  using Ring = RingPosition<Form::kStages>;
  using Scores = float[Form::kKeys / 2];
  using Weights = uint32_t[Form::kKeys / 4];
  using Values = float[Form::kHead / 2];
  /// Q of a warp's rows as a product's first operand, if the registers suffice: the products then read less shared memory.
  static constexpr bool kHoldsQuery = Form::kHead <= 128;
  using Query = uint32_t[kHoldsQuery ? Form::kHead / 16 : 1][4];
  static constexpr bool kIsF16 = std::is_same_v<Kv, __half>;
  static constexpr int kStepsOfSlice = Form::kSliceColumns / 16;
  static constexpr int kTurnBarrier = 1;   ///< of the first warpgroup; the next one is the second warpgroup's
  static constexpr int kGroupBarrier = 3;  ///< of the threads of one warpgroup

  struct Softmax {
    float max[2];
    float sum[2];
  };

  const typename Form::Params& p;
  Shared& shared;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;

  __device__ __forceinline__ int row_of_lane(int half) const { return warp * 16 + 8 * half + lane / 4; }
  /// Tells that the warp no longer uses the memory that a barrier guards.
  __device__ __forceinline__ void release(SharedBarrier& barrier) const {
    if (lane == 0) arrive(barrier);
  }
  /// The two warpgroups start products in turn, so that one multiplies while the other computes weights.
  __device__ __forceinline__ void wait_for_turn() const {
    barrier_of(kTurnBarrier + warpgroup, Form::kConsumers);
  }
  __device__ __forceinline__ void give_turn() const {
    arrive_at(kTurnBarrier + (warpgroup ^ 1), Form::kConsumers);
  }
  /// Makes the writes of the warpgroup's threads visible to its products.
  __device__ __forceinline__ void publish_to_group() const {
    publish_copies();
    barrier_of(kGroupBarrier + warpgroup, 128);
  }

  /// With a cache in f16: converts the warpgroup's rows of Q from bf16.
  __device__ __forceinline__ void convert_query() const {
    constexpr int kPieces = 64 * Form::kRowBytes / 16;
    for (int slice = 0; slice < Form::kSlices; ++slice) {
      auto* rows = reinterpret_cast<uint4*>(shared.query[slice]) + warpgroup * kPieces;
#pragma unroll 2
      for (int i = static_cast<int>(threadIdx.x) % 128; i < kPieces; i += 128) {
        const uint4 dims = rows[i];
        rows[i] = {from_bf16_pair<Kv>(dims.x), from_bf16_pair<Kv>(dims.y), from_bf16_pair<Kv>(dims.z),
                   from_bf16_pair<Kv>(dims.w)};
      }
    }
    publish_to_group();
  }

  /// Zeros the values of a stage from key `first` on. Both warpgroups do it, and each waits for its own threads.
  __device__ __forceinline__ void clear_values(int stage, int32_t first) const {
    constexpr int kPieces = Form::kHead / 8;  // of 16 bytes
#pragma unroll 1
    for (int i = first * kPieces + static_cast<int>(threadIdx.x) % 128; i < Form::kKeys * kPieces; i += 128)
      *reinterpret_cast<uint4*>(shared.value[stage] + Form::offset(i / kPieces, i % kPieces)) = {};
    publish_to_group();
  }

  __device__ __forceinline__ void load_query(Query& query) const {
    const int row = warp * 16 + lane % 16;
    const uint32_t at = shared_address(shared.query[0]) + row * Form::kRowBytes;
#pragma unroll
    for (int step = 0; step < Form::kHead / 16; ++step) {
      const int piece = piece_in_row<Form::kRowBytes>(row, step % kStepsOfSlice * 2 + lane / 16);
      load_matrices(query[step], at + step / kStepsOfSlice * Form::kQuerySliceBytes + piece * 16);
      if constexpr (kIsF16) {
#pragma unroll
        for (uint32_t& pair : query[step])
          pair = from_bf16_pair<Kv>(pair);
      }
    }
  }

  template <class Rows>
  static __device__ __forceinline__ void multiply_query(Scores& score, const Rows& rows, uint64_t keys,
                                                        bool add) {
    if constexpr (kIsF16) {
      multiply_slices_f16(score, rows, keys, add);
    } else {
      multiply_slices(score, rows, keys, add);
    }
  }

  __device__ __forceinline__ void begin_scores(int stage, const Query& query, Scores& score) const {
    const uint32_t rows = same_in_warp(shared_address(shared.query[0]) + warpgroup * 64 * Form::kRowBytes);
    const uint32_t key = same_in_warp(shared_address(shared.key[stage]));
    const uint64_t keys = matrix_descriptor<Form::kRowBytes>(key, 0, Form::kEightKeysBytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < Form::kHead / 16; ++step) {
      const int slice = step / kStepsOfSlice, bytes = step % kStepsOfSlice * 32;
      const uint64_t b = advanced(keys, slice * Form::kKeySliceBytes + bytes);
      if constexpr (kHoldsQuery) {
        multiply_query(score, query[step], b, step > 0);
      } else {
        const uint64_t a =
            advanced(matrix_descriptor<Form::kRowBytes>(rows), slice * Form::kQuerySliceBytes + bytes);
        multiply_query(score, a, b, step > 0);
      }
    }
    commit_products();
  }

  __device__ __forceinline__ void begin_values(int stage, const Weights& weight, Values& value) const {
    const uint32_t at = same_in_warp(shared_address(shared.value[stage]));
    const uint64_t values =
        matrix_descriptor<Form::kRowBytes>(at, Form::kKeySliceBytes, Form::kEightKeysBytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < Form::kKeys / 16; ++step) {
      const uint64_t b = advanced(values, step * 2 * Form::kEightKeysBytes);
      if constexpr (kIsF16) {
        multiply_rows_f16(value, weight + 4 * step, b);
      } else {
        multiply_rows(value, weight + 4 * step, b);
      }
    }
    commit_products();
  }

  __device__ __forceinline__ void mask(const QueryTile& tile, int32_t first_key, Scores& score) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t allowed = tile.first_position + row_of_lane(half) / p.group - first_key - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < Form::kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (8 * n + i > allowed) score[4 * n + 2 * half + i] = -INFINITY;
        }
      }
    }
  }

  /// Caps scores, and masks keys in front of a row's window.
  __device__ __forceinline__ void apply_options(const QueryTile& tile, int32_t first_key,
                                                Scores& score) const {
    if (p.options.cap > 0.0f) {
#pragma unroll
      for (float& of_key : score)
        of_key = p.options.capped(of_key);
    }
    if (first_key >= p.options.first_seen(tile.keys() - 1)) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t position = tile.first_position + row_of_lane(half) / p.group;
      const int32_t first = p.options.first_seen(position) - first_key - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < Form::kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (8 * n + i < first) score[4 * n + 2 * half + i] = -INFINITY;
        }
      }
    }
  }

  /// Turns scores into weights relative to the largest score of each row so far. `factor`: by which the results
  /// so far must be multiplied.
  __device__ __forceinline__ void weigh(Scores& score, Softmax& softmax, float (&factor)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = softmax.max[half];
#pragma unroll
      for (int n = 0; n < Form::kKeys / 8; ++n)
        max = fmaxf(max, fmaxf(score[4 * n + 2 * half], score[4 * n + 2 * half + 1]));
      max = group_max(max);
      const float base = max == -INFINITY ? 0.0f : max * p.scale_log2;
      factor[half] = exp2_approx(softmax.max[half] * p.scale_log2 - base);
      softmax.max[half] = max;
      softmax.sum[half] *= factor[half];
#pragma unroll
      for (int n = 0; n < Form::kKeys / 8; ++n) {
#pragma unroll
        for (int i = 4 * n + 2 * half; i < 4 * n + 2 * half + 2; ++i) {
          score[i] = exp2_approx(score[i] * p.scale_log2 - base);
        }
        softmax.sum[half] += score[4 * n + 2 * half] + score[4 * n + 2 * half + 1];
      }
    }
  }

  static __device__ __forceinline__ void rescale(Values& value, const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < Form::kHead / 2; ++i)
      value[i] *= factor[i / 2 % 2];
  }

  /// A lane's scores have the order of a product's first operand.
  static __device__ __forceinline__ void round_weights(const Scores& score, Weights& weight) {
#pragma unroll
    for (int i = 0; i < Form::kKeys / 4; ++i) {
      if constexpr (kIsF16) {
        const __half2_raw pair = __floats2half2_rn(score[2 * i], score[2 * i + 1]);
        weight[i] = pair.x | static_cast<uint32_t>(pair.y) << 16;
      } else {
        weight[i] = pack<Kv>(score[2 * i], score[2 * i + 1]);
      }
    }
  }

  /// Transposes words in a group of four lanes: lane t gives word i to lane i, where it becomes word t.
  __device__ __forceinline__ void transpose_words(uint32_t (&word)[4]) const {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      const bool is_upper = (lane & distance) != 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((i & distance) != 0) continue;
        uint32_t &lower = word[i], &upper = word[i + distance];
        const uint32_t other = __shfl_xor_sync(kWholeWarp, is_upper ? lower : upper, distance);
        lower = is_upper ? other : lower;
        upper = is_upper ? upper : other;
      }
    }
  }

  /// Writes one of the lane's rows; each lane of its group has a quarter of the row.
  __device__ __forceinline__ void store_row(const QueryTile& tile, int row, float (&value)[Form::kHead / 4],
                                            float inverse) const {
    const bool valid = row < tile.rows(p);
#pragma unroll
    for (float& v : value)
      v *= inverse;
    if constexpr (Form::kHead == kFp8Columns) {
      if (p.fp8_out.codes != nullptr) {
        float largest = 0.0f;
#pragma unroll
        for (const float v : value)
          largest = fmaxf(largest, fabsf(v));
        const Fp8Scale scale(group_max(largest));
        const int64_t token = tile.first_token + row / p.group;
        const int32_t head = tile.kv_head * p.group + row % p.group;
#pragma unroll
        for (int first = 0; first < Form::kHead / 16;
             first += 4) {  // groups of 16 columns; a lane has four codes of each
          uint32_t word[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float* four = value + 4 * (first + i);
            word[i] = e4m3_codes(make_float4(four[0], four[2], four[1], four[3]), scale.inverse);
          }
          transpose_words(word);
          if (valid)
            *reinterpret_cast<uint4*>(p.fp8_out.codes + token * p.fp8_out.cols + head * kFp8Columns +
                                      16 * (first + lane % 4)) = {word[0], word[1], word[2], word[3]};
        }
        if (valid && lane % 4 == 0)
          p.fp8_out.scales[head * int64_t{p.fp8_out.scale_stride} + token] = scale.bits;
        return;
      }
    }
    auto* to = static_cast<__nv_bfloat16*>(p.out) + tile.head_of_row(p, row, p.out_stride, Form::kHead);
#pragma unroll
    for (int first = 0; first + 4 <= Form::kHead / 8;
         first += 4) {  // groups of eight columns; a lane has two of each
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        word[i] = pack<__nv_bfloat16>(value[2 * (first + i)], value[2 * (first + i) + 1]);
      transpose_words(word);
      if (valid)
        *reinterpret_cast<uint4*>(to + 8 * (first + lane % 4)) = {word[0], word[1], word[2], word[3]};
    }
#pragma unroll
    for (int n = Form::kHead / 32 * 4; n < Form::kHead / 8; ++n) {
      if (valid)
        *reinterpret_cast<uint32_t*>(to + 8 * n + lane % 4 * 2) =
            pack<__nv_bfloat16>(value[2 * n], value[2 * n + 1]);
    }
  }

  /// The factor for the row's weighted values.
  __device__ __forceinline__ float end_factor(const QueryTile& tile, float max, float sum, int half) const {
    const int32_t head = tile.kv_head * p.group + row_of_lane(half) % p.group;
    return p.options.end_factor(max * p.scale_log2, sum, head);
  }

  __device__ __forceinline__ void store(const QueryTile& tile, const Softmax& softmax,
                                        const Values& value) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = group_sum(softmax.sum[half]);
      float of_row[Form::kHead / 4];
#pragma unroll
      for (int n = 0; n < Form::kHead / 8; ++n) {
        of_row[2 * n] = value[4 * n + 2 * half];
        of_row[2 * n + 1] = value[4 * n + 2 * half + 1];
      }
      float inverse = sum != 0.0f ? 1.0f / sum : 0.0f;
      if constexpr (kOptions) inverse = end_factor(tile, softmax.max[half], sum, half);
      store_row(tile, row_of_lane(half), of_row, inverse);
    }
  }

  __device__ __forceinline__ void attend(const QueryTile& tile, Ring& ring) const {
    const int32_t last = key_tiles<Form>(tile) - 1, end = first_key_tile<Form>(p, tile);
    Values value = {};
    Softmax softmax{{-INFINITY, -INFINITY}, {}};
    Scores score;
    Weights weight;
    float factor[2];
    Query query;
    if constexpr (kHoldsQuery) load_query(query);
    wait(shared.key_full[ring.stage], ring.parity);
    begin_scores(ring.stage, query, score);
    wait_products<0>();
    hold(score);
    release(shared.key_empty[ring.stage]);
    if constexpr (kHoldsQuery) release(shared.query_empty);  // the registers hold all of Q
    if constexpr (kOptions) apply_options(tile, last * Form::kKeys, score);
    mask(tile, last * Form::kKeys, score);
    weigh(score, softmax, factor);
    round_weights(score, weight);
    if ((last + 1) * Form::kKeys > tile.context) {
      wait(shared.value_full[ring.stage], ring.parity);
      clear_values(ring.stage, tile.context - last * Form::kKeys);
    }
    Ring before = ring;
    ring.advance();
    if (last > end) wait(shared.key_full[ring.stage], ring.parity);
#pragma unroll 1
    for (int32_t i = last - 1; i >= end; --i) {
      wait_for_turn();
      hold(value);
      hold(weight);
      begin_scores(ring.stage, query, score);
      wait(shared.value_full[before.stage], before.parity);
      begin_values(before.stage, weight, value);
      give_turn();
      wait_products<1>();
      hold(score);
      release(shared.key_empty[ring.stage]);
      if constexpr (kOptions) apply_options(tile, i * Form::kKeys, score);
      if ((i + 1) * Form::kKeys > tile.first_position + 1) mask(tile, i * Form::kKeys, score);
      weigh(score, softmax, factor);
      hold(score);
      Ring next = ring;
      next.advance();
      // This wait is here because ptxas moves a wait for products up to the branch before it, and weights are to be computed meanwhile.
      if (i > end) wait(shared.key_full[next.stage], next.parity);
      wait_products<0>();
      hold(value);
      hold(weight);
      release(shared.value_empty[before.stage]);
      if (__any_sync(kWholeWarp, factor[0] != 1.0f || factor[1] != 1.0f)) rescale(value, factor);
      round_weights(score, weight);
      before = ring;
      ring = next;
    }
    if constexpr (!kHoldsQuery) release(shared.query_empty);
    wait(shared.value_full[before.stage], before.parity);
    hold(value);
    hold(weight);
    begin_values(before.stage, weight, value);
    wait_products<0>();
    hold(value);
    hold(weight);
    release(shared.value_empty[before.stage]);
    store(tile, softmax, value);
  }

  __device__ void run() const {
    if (warpgroup == 1) give_turn();
    Ring ring;
    for (uint32_t parity = 0;; parity ^= 1) {
      wait(shared.query_full, parity);
      const QueryTile tile = shared.tile;
      __syncwarp();  // one lane releases it for all
      if (tile.tokens == 0) break;
      if constexpr (kIsF16 && !kHoldsQuery) convert_query();
      attend(tile, ring);
    }
    if (warpgroup == 0) wait_for_turn();  // the last turn, which no warpgroup took
  }
};

}  // namespace minfer::cuda
