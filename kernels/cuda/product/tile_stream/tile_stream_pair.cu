#include "kernels/cuda/product/tile_stream/tile_stream_kernels.h"
#include "kernels/cuda/product/tile_stream/tile_stream_launch.cuh"

/// Two matrices of different types times the same 9 to 128 tokens in one launch, such as queries and keys beside the values of Q4_K_M and
/// Q5_K_M in half of the layers. A block has 64 rows of one or the other, so the second matrix does not wait for the end of the first.
namespace minfer::cuda {

/// The matrix of some of a launch's blocks; each block multiplies one tile.
struct PairedArgs : StreamArgs {
  int32_t first_block = 0;
};

class PairedSchedule : public StreamSchedule {
 public:
  using Args = PairedArgs;
  static constexpr bool kMayGate = false;
  __device__ __forceinline__ explicit PairedSchedule(const PairedArgs& args)
      : StreamSchedule(args, static_cast<int32_t>(blockIdx.x) - args.first_block, args.tiles) {}
};

namespace {

template <class First, class Second>
__global__ void __launch_bounds__(First::kThreads, 1)
    tile_stream_pair_kernel(const __grid_constant__ PairedArgs first,
                            const __grid_constant__ PairedArgs second,
                            const __grid_constant__ CUtensorMap first_map,
                            const __grid_constant__ CUtensorMap second_map,
                            const __grid_constant__ CUtensorMap x_map, Stamp stamp) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  if (static_cast<int32_t>(blockIdx.x) < second.first_block) {
    run_tile_stream<First, PairedSchedule>(first, first_map, x_map, shared_bytes, stamp);
  } else {
    run_tile_stream<Second, PairedSchedule>(second, second_map, x_map, shared_bytes, stamp);
  }
#else
  __trap();
#endif
}

template <class Form>
PairedArgs paired_args(const ProductArgs& args, int32_t first_block) {
  PairedArgs paired{tile_stream_args<Form>(args), first_block};
  paired.by_rounds = true;  // of one tile per block
  return paired;
}

template <DType type, DType other, int kTokens>
void launch_pair(Launch& launch, const ProductArgs& first, const ProductArgs& second) {
  constexpr int kParts = kTokens <= 32 ? 2 : 1;
  using First = TileStream<type, kTokens, 1, kParts>;
  using Second = TileStream<other, kTokens, 1, kParts>;
  static_assert(First::kThreads == Second::kThreads && First::kXSlices == Second::kXSlices);
  using Shared = TileStreamShared<First>;
  using OtherShared = TileStreamShared<Second>;
  const PairedArgs of_first = paired_args<First>(first, 0),
                   of_second = paired_args<Second>(second, of_first.tiles);
  const int64_t ahead = int64_t{of_first.tiles} * First::kStages * First::kStageBytes +
                        int64_t{of_second.tiles} * Second::kStages * Second::kStageBytes;
  launch.reads_ahead(ahead)(
      "tile_stream_pair", tile_stream_pair_kernel<First, Second>,
      dim3(static_cast<unsigned>(of_first.tiles + of_second.tiles)), dim3(First::kThreads),
      std::max({sizeof(Shared), sizeof(OtherShared), kMoreThanHalfOfShared}), of_first, of_second,
      tile_map<First>(first), tile_map<Second>(second), tile_x_map<First>(first));
}

template <DType type, DType other>
void launch_pair_of(Launch& launch, const ProductArgs& first, const ProductArgs& second) {
  for_value(Values<16, 32, 64, 128>{}, "pair of products by tiles of tokens",
            smallest_token_tile(first.tokens, kMostTokensOfCluster),
            [&](auto tokens) { launch_pair<type, other, tokens>(launch, first, second); });
}

}  // namespace

bool tile_stream_pair(Launch& launch, DType type, const ProductArgs& first, DType other,
                      const ProductArgs& second) {
  constexpr int32_t kLeastTokens = 9;
  const int64_t tiles = row_tiles(first.rows, false, 1) + row_tiles(second.rows, false, 1);
  if (first.tokens < kLeastTokens || first.tokens > kMostTokensOfCluster || tiles > launch.num_sms())
    return false;
  if (other != DType::q6_k) return false;
  if (type == DType::q4_k) {
    launch_pair_of<DType::q4_k, DType::q6_k>(launch, first, second);
  } else if (type == DType::q5_k) {
    launch_pair_of<DType::q5_k, DType::q6_k>(launch, first, second);
  } else {
    return false;
  }
  return true;
}

}  // namespace minfer::cuda
