#pragma once

#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/product/fp8/fp8_gemm.cuh"
#include "kernels/cuda/product/fp8/fp8_gemm.h"

namespace minfer::cuda {

/// 128 columns of a block's strips, so that 16 bytes of all rows are consecutive; half of the strips belong to up.
template <class Form>
CUtensorMap gemm_weight_map(const ProductArgs& args) {
  constexpr int32_t kTile = Tile<DType::fp8>::kBytes, kPiece = kStripRows * 16, kPieces = kFp8Columns / 16;
  const int64_t tiles = tiles_of(args.cols);
  const TensorDimension bytes{kPiece / 8, 8, kPiece / 8},
      strips{strips_of(args.rows), tiles * kTile, Form::kGateUp ? Form::kStrips / 2 : Form::kStrips},
      pieces{kTileCols / 16, kPiece, kPieces}, columns{tiles, kTile, 1};
  if constexpr (Form::kGateUp) {
    const auto distance = static_cast<const char*>(args.up) - static_cast<const char*>(args.weight);
    const TensorDimension dimensions[] = {bytes, strips, {2, distance, 2}, pieces, columns};
    return tensor_map(args.weight, dimensions, BoxLayout::plain);
  } else {
    const TensorDimension dimensions[] = {bytes, strips, pieces, columns};
    return tensor_map(args.weight, dimensions, BoxLayout::plain);
  }
}

template <class Form>
void launch_fp8_gemm(Launch& launch, const Fp8Product& product, int32_t clusters) {
  using Shared = Fp8GemmShared<Form>;
  static_assert(sizeof(Shared) <= kMostStreamBytes);
  const ProductArgs& args = product.args;
  const int32_t groups = args.cols / kFp8Columns;
  const int32_t out_rows = kGemmBlocks * (Form::kGateUp ? kGemmRows / 2 : kGemmRows);
  Fp8GemmArgs gemm{.output = args, .out = product.out, .depth = groups};
  gemm.token_blocks = (args.tokens + Form::kTokens - 1) / Form::kTokens;
  gemm.units = args.rows / out_rows * gemm.token_blocks;
  const TensorDimension x[] = {{kFp8Columns, 1, kFp8Columns},
                               {args.tokens, product.x.cols, Form::kTokens / kGemmBlocks},
                               {groups, kFp8Columns, 1}};
  const TensorDimension scales[] = {{args.tokens, 2, Form::kTokens},
                                    {groups, int64_t{product.x.scale_stride} * 2, 1}};
  const int32_t blocks = kGemmBlocks * clusters;
  launch.reads_ahead(int64_t{blocks} * Form::kStages * Form::kWeightBytes)
      .in_clusters(kGemmBlocks)(Form::kGateUp ? "fp8_gemm_gate_up" : "fp8_gemm", fp8_gemm_kernel<Form>,
                                dim3(static_cast<unsigned>(blocks)), dim3(Form::kThreads), sizeof(Shared),
                                gemm, gemm_weight_map<Form>(args), tensor_map(product.x.codes, x),
                                tensor_map(product.x.scales, scales, BoxLayout::plain));
}

template <bool kGateUp>
void fp8_gemm(Launch& launch, const Fp8Product& product, const Fp8GemmPlan& plan) {
  plan.warpgroups == 2 ? launch_fp8_gemm<Fp8GemmForm<2, kGateUp>>(launch, product, plan.clusters)
                       : launch_fp8_gemm<Fp8GemmForm<3, kGateUp>>(launch, product, plan.clusters);
}

}  // namespace minfer::cuda
