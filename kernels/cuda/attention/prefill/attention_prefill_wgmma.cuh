#pragma once

#include <algorithm>

#include "kernels/cuda/attention/prefill/attention_prefill.h"
#include "kernels/cuda/attention/prefill/wgmma_rows.cuh"
#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/weights/element_types.h"

/// Causal attention of sequences with any number of tokens, for a cache in bf16, f16 or fp8 on Hopper: the operation,
/// tensors and tiles of attention_prefill.cuh, by warpgroup products, after FlashAttention-3 (Shah et al. 2024).
///
/// Blocks are persistent: each takes tiles of 128 rows in turn, those with the most keys first. One warp finds the tiles and copies Q
/// and a ring of K by TMA, another warp copies V: 128 keys a stage (fewer with larger heads, keys_of_stage()), a lane for each box,
/// which lies in one block of the cache. They are ahead by all stages, across tiles too. Two warpgroups multiply 64 rows each. A tile
/// takes its keys from the last, which alone need a mask, to the first. Two things overlap: the softmax of a stage with the products
/// of the stage before (a warpgroup starts Q K^T of the next keys and P V of the last before it waits for either), and the softmax of
/// one warpgroup with the products of the other (they take turns to start products). Scores, weights and results stay in registers.
///
/// In shared memory a tile of keys is [key / 8][head_size / 64][8][64], like a box of the whole cache's tensor map
/// [rows / 8][head_size / 64][8][64], with swizzled rows of 128 bytes. Heads of 96 have rows of 32 elements instead
/// of 64, heads of 80 rows of 16. Rows come by eights, so blocks of the cache are a multiple of eight slots.
///
/// With a cache in fp8, K and V are copied as they are, and two more warps widen them to f16 into the stages that are multiplied.
///
/// The cache may hold NaN behind a sequence's last token: scores of it are replaced, and values become zeros.
///
/// With PrefillOptionParams (see attention_prefill.cuh) keys are taken down to the tile with the first key in the window of the
/// rows' first token. That tile's boxes in front of this key come as zeros: their copies use an address behind the end of the cache.
///
/// Shared memory, registers and the bound of each head size: ../README.md.
///
/// Measured on one H200, 32 heads of 128 over 8, bf16, ops by themselves: prompts of 2,048 / 4 x 2,048 / 8,192 tokens in 65 / 268 / 887 us,
/// 532 / 513 / 620 TFLOP/s of the half that is not masked.
namespace minfer::cuda {

template <class Form>
__global__ void __launch_bounds__(Form::kThreads, 1)
    attention_prefill_wgmma_kernel(const __grid_constant__ typename Form::Params p,
                                   const __grid_constant__ CUtensorMap query_map,
                                   const __grid_constant__ CUtensorMap key_map,
                                   const __grid_constant__ CUtensorMap value_map, Stamps stamps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const EndStamp end_stamp(stamps);
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<WgmmaShared<Form>*>(shared_bytes);
  if (threadIdx.x == Form::kConsumers) {
    prefetch_map(query_map);
    prefetch_map(key_map);
    prefetch_map(value_map);
    make_barrier(shared.tile_full, 1);
    make_barrier(shared.query_full, 1);
    make_barrier(shared.query_empty,
                 Form::kConsumers / 32 + 1);  // the warps that multiply, and the one that brings V
    for (int stage = 0; stage < Form::kStages; ++stage) {
      make_barrier(shared.key_full[stage], 1);
      make_barrier(shared.key_empty[stage], Form::kConsumers / 32);
      make_barrier(shared.value_full[stage], 1);
      make_barrier(shared.value_empty[stage], Form::kConsumers / 32);
    }
    if constexpr (Form::kIsFp8) {
      for (auto* raw : {&shared.raw_key, &shared.raw_value}) {
        for (int stage = 0; stage < Form::kRawStages; ++stage) {
          make_barrier(raw->full[stage], 1);
          make_barrier(raw->empty[stage], 1);
          raw->is_end[stage] = 0;
        }
      }
    }
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= Form::kConsumers) {
    keep_registers<Form::kProducerRegisters>();
    const int warp = static_cast<int>(threadIdx.x - Form::kConsumers) / 32;
    QueryTile first{};
    if (warp == 0) first = find_query_tile(p, static_cast<int32_t>(blockIdx.x));
    begin_kernel({});
    allow_next_kernel();
    const WgmmaProducer<Form> producer{p, shared};
    if (warp == 0) producer.bring_queries(first, query_map, key_map);
    if (warp == 1) producer.bring_values(value_map);
    if constexpr (Form::kIsFp8) {
      if (warp == 2) producer.widen_tiles(shared.raw_key, shared.key, shared.key_full, shared.key_empty);
      if (warp == 3)
        producer.widen_tiles(shared.raw_value, shared.value, shared.value_full, shared.value_empty);
    }
  } else {
    take_registers<Form::kConsumerRegisters>();
    begin_kernel(stamps);
    allow_next_kernel();
    WgmmaConsumer<Form>{p, shared}.run();
  }
#else
  __trap();  // launched on compute capability 9.0 alone, for which sm_90a is built
#endif
}

/// The whole cache as boxes of p.keys_of_box keys of a head, see above; in fp8, plain rows.
template <class Form>
CUtensorMap cache_map(const void* data, const PrefillParams& p) {
  const int64_t rows = int64_t{p.num_blocks} * p.cache.kv_heads * p.cache.block_size;
  if constexpr (Form::kIsFp8) {
    const TensorDimension dimensions[] = {{Form::kHead, 1, Form::kHead}, {rows, Form::kHead, p.keys_of_box}};
    return tensor_map(data, dimensions, BoxLayout::plain);
  } else {
    constexpr int64_t kKeyBytes = Form::kHead * 2;
    const TensorDimension dimensions[] = {{Form::kSliceColumns, 2, Form::kSliceColumns},
                                          {8, kKeyBytes, 8},
                                          {Form::kSlices, Form::kRowBytes, Form::kSlices},
                                          {rows / 8, 8 * kKeyBytes, p.keys_of_box / 8}};
    return tensor_map(data, dimensions, Form::kLayout);
  }
}

template <class Form>
void launch_wgmma_form(Launch& launch, const typename Form::Params& p) {
  static_assert(sizeof(WgmmaShared<Form>) <= kWgmmaSharedBytes);
  const TensorDimension query[] = {{Form::kHead, 2, Form::kSliceColumns},
                                   {p.cache.kv_heads * p.group, Form::kHead * 2, p.group},
                                   {p.num_tokens, p.qkv_stride * 2, p.tokens_per_tile}};
  const int32_t blocks = std::min(p.max_tiles * p.cache.kv_heads, launch.num_sms());
  launch("attention", attention_prefill_wgmma_kernel<Form>, dim3(static_cast<unsigned>(blocks)),
         dim3(Form::kThreads), sizeof(WgmmaShared<Form>), p, tensor_map(p.qkv, query, Form::kLayout),
         cache_map<Form>(p.k, p), cache_map<Form>(p.v, p));
}

template <int kHead, class Params>
void attention_prefill_wgmma(Launch& launch, const Params& params, DType kv) {
  for_type(NarrowCacheTypes{}, "attention on tensor cores: KV cache", kv,
           [&](auto type) { launch_wgmma_form<WgmmaForm<ElementOf<type>, kHead, Params>>(launch, params); });
}

}  // namespace minfer::cuda
