#include "kernels/cuda/choice/product_choice.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cuda/device/device_dtype.h"

namespace minfer::cuda {
namespace {

/// A GPU without Hopper's tensor cores.
constexpr DeviceFacts kOtherGpu{.sms = 108, .shared_bytes = 163 << 10};

ProductKernel choice(const ProductShape& shape, int64_t tokens) {
  return choose(shape, tokens, kH200);
}

TEST(ProductChoice, GoesByTypesAndTokensOnAnyGpu) {
  struct Case {
    DType weight, x;
    int64_t tokens, cols;
    ProductKernel kernel;
  };
  constexpr Case kCases[] = {
      {DType::f32, DType::f32, 1, 64, ProductKernel::row_product},
      {DType::f32, DType::f32, 9, 64, ProductKernel::matmul},
      {DType::q4_k, DType::f32, 1, 256, ProductKernel::dequantise_matmul},
      {DType::f32, DType::bf16, 127, 64, ProductKernel::row_product},
      {DType::f32, DType::bf16, 1000, 64, ProductKernel::split_product},
      {DType::f32, DType::bf16, 1000, 63, ProductKernel::row_product},
      {DType::f16, DType::bf16, 1, 64, ProductKernel::row_product},
      {DType::f16, DType::bf16, 100, 64, ProductKernel::f16_matmul},
      {DType::bf16, DType::bf16, 8, 64, ProductKernel::strip},
      {DType::bf16, DType::bf16, 8, 63, ProductKernel::matmul},
      {DType::bf16, DType::bf16, 9, 64, ProductKernel::matmul},
      {DType::q4_k, DType::bf16, 8, 256, ProductKernel::strip},
      {DType::q4_k, DType::bf16, 9, 256, ProductKernel::dequantise_matmul},
      {DType::fp8, DType::bf16, 8, 704, ProductKernel::strip},
      {DType::fp8, DType::bf16, 9, 704, ProductKernel::dequantise_matmul},
      {DType::fp8, DType::f32, 1, 704, ProductKernel::dequantise_matmul},
      {DType::q3_k, DType::bf16, 1, 256, ProductKernel::strip},
      {DType::q3_k, DType::bf16, 2, 256, ProductKernel::dequantise_matmul},
  };
  for (const Case& c : kCases) {
    const ProductShape shape{.weight = c.weight, .x = c.x, .out = DType::f32, .rows = 64, .cols = c.cols};
    EXPECT_EQ(choose(shape, c.tokens, kOtherGpu), c.kernel) << name(c.weight) << ' ' << c.tokens;
  }
  EXPECT_THROW(choose({.weight = DType::q4_k, .x = DType::f16, .rows = 64, .cols = 256}, 1, kOtherGpu),
               Error);
  const ProductShape f16{.weight = DType::f16, .out = DType::bf16, .rows = 64, .cols = 64};
  EXPECT_EQ(choose(f16, 100, kOtherGpu), ProductKernel::dequantise_matmul)
      << "cuBLASLt writes no bf16 from f16";
}

TEST(ProductChoice, Bf16StreamsFewTokensAndTilesThatFillTheMultiprocessors) {
  const auto streams = [](int64_t rows, int64_t tokens, bool gate_up = false, bool adds = false) {
    return choice({.out = DType::f32, .rows = rows, .cols = 4096, .gate_up = gate_up, .adds = adds},
                  tokens) == ProductKernel::stream;
  };
  EXPECT_FALSE(streams(4096, 2));
  EXPECT_TRUE(streams(4096, 3));
  EXPECT_TRUE(streams(4096, 128));
  EXPECT_FALSE(streams(4096, 129));
  EXPECT_TRUE(streams(14336, 129, true));
  EXPECT_FALSE(streams(4096, 512)) << "64 tiles";
  EXPECT_TRUE(streams(4096, 1024)) << "128 tiles";
  EXPECT_FALSE(streams(6144, 1024)) << "192 tiles";
  EXPECT_TRUE(streams(6144, 2048)) << "384 tiles";
  EXPECT_FALSE(streams(6144, 2049)) << "two launches";
  EXPECT_TRUE(streams(4096, 128, false, true));
  EXPECT_FALSE(streams(4096, 1024, false, true));
}

TEST(ProductChoice, QuantisedWeightsStreamPastWhatOtherKernelsTake) {
  for (const DType type : {DType::q4_k, DType::q8_0, DType::q3_k, DType::lut4}) {
    const ProductShape shape{.weight = type, .out = DType::f32, .rows = 4096, .cols = 4096};
    const int64_t most = is_rare(type) ? 1 : kStripTokens;
    for (const int64_t tokens : {int64_t{1}, most})
      EXPECT_EQ(choice(shape, tokens), ProductKernel::strip) << name(type) << ' ' << tokens;
    for (const int64_t tokens : {most + 1, int64_t{100000}})
      EXPECT_EQ(choice(shape, tokens), ProductKernel::tile_stream) << name(type) << ' ' << tokens;
  }
}

TEST(ProductChoice, OddShapesTakeAnotherKernel) {
  const ProductShape bf16{.rows = 24, .cols = 64}, tiles{.weight = DType::q4_k, .rows = 24, .cols = 256};
  ASSERT_EQ(choice(bf16, 9), ProductKernel::stream);
  ASSERT_EQ(choice(tiles, 9), ProductKernel::tile_stream);
  const auto odd = [](ProductShape shape, auto change) {
    change(shape);
    return shape;
  };
  for (const auto change : {+[](ProductShape& s) { s.rows = 23; }, +[](ProductShape& s) { s.cols = 60; },
                            +[](ProductShape& s) { s.x_is_aligned = false; },
                            +[](ProductShape& s) { s.out_is_aligned = false; }}) {
    EXPECT_EQ(choice(odd(bf16, change), 9), ProductKernel::matmul);
    EXPECT_EQ(choice(odd(tiles, change), 9), ProductKernel::dequantise_matmul);
  }
  EXPECT_EQ(choice(odd(bf16, [](ProductShape& s) { s.out_takes_pieces = false; }), 9), ProductKernel::matmul);
  EXPECT_EQ(choice(odd(tiles, [](ProductShape& s) { s.x_is_aligned = false; }), 1),
            ProductKernel::dequantise_matmul);
  ProductShape pair{.weight = DType::q4_k, .up = DType::q4_k, .rows = 64, .cols = 256, .gate_up = true};
  EXPECT_EQ(choice(pair, 9), ProductKernel::tile_stream);
  pair.up_is_behind = false;
  EXPECT_EQ(choice(pair, 9), ProductKernel::apart) << "each streams by itself";
  pair.up = DType::q6_k;
  EXPECT_EQ(choice(pair, 1), ProductKernel::apart) << "two types";
  EXPECT_EQ(choose(pair, 9, kOtherGpu), ProductKernel::dequantise_matmul);
}

TEST(ProductChoice, Fp8TakesTheLargeTilesOfManyTokens) {
  ProductShape shape{.weight = DType::fp8, .x = DType::fp8, .out = DType::f32, .rows = 4096, .cols = 1024};
  EXPECT_EQ(choice(shape, 128), ProductKernel::fp8_stream);
  EXPECT_EQ(choice(shape, 129), ProductKernel::fp8_gemm);
  shape.rows = 4096 - 128;
  EXPECT_EQ(choice(shape, 129), ProductKernel::fp8_stream);
  shape.cols = 1000;
  EXPECT_THROW(choice(shape, 129), Error);
}

TEST(TakesFp8, WhereAllWeightsHeadsAndTheDeviceAllowIt) {
  const auto weight = [](DType type, int64_t rows, int64_t cols, int64_t count = 1) {
    return Weight{nullptr, type, count, rows, cols};
  };
  const std::vector<Weight> dense{weight(DType::fp8, 384, 256), weight(DType::fp8, 256, 384)};
  EXPECT_TRUE(takes_fp8(dense, 2, 0, kH200));
  EXPECT_TRUE(takes_fp8(dense, 2, 128, kH200));
  EXPECT_FALSE(takes_fp8(dense, 1, 0, kH200)) << "one token";
  EXPECT_FALSE(takes_fp8(dense, 2, 0, kOtherGpu)) << "no such tensor cores";
  EXPECT_FALSE(takes_fp8(dense, 2, 64, kH200)) << "two heads have a scale together";
  EXPECT_FALSE(takes_fp8(dense, 2, 256, kH200)) << "attention writes heads of 128 alone";
  EXPECT_FALSE(takes_fp8({{dense[0], weight(DType::bf16, 384, 256)}}, 2, 0, kH200));
  EXPECT_FALSE(takes_fp8({{weight(DType::fp8, 384, 192)}}, 2, 0, kH200)) << "columns";
  EXPECT_FALSE(takes_fp8({{weight(DType::fp8, 384, 256, 4)}}, 2, 0, kH200)) << "experts";
}

TEST(TakesNorm, OneTokenOfBf16AndQuantisedWeights) {
  const auto takes = [](DType type, int64_t cols, int64_t tokens = 1) {
    const Weight weight{nullptr, type, 1, 64, cols};
    return takes_norm({&weight, 1}, tokens, kH200);
  };
  for (const DType type : {DType::bf16, DType::q4_k, DType::q3_k, DType::fp8}) {
    EXPECT_TRUE(takes(type, 4096)) << name(type);
    EXPECT_FALSE(takes(type, 4096, 2)) << name(type);
    EXPECT_FALSE(takes(type, 4100)) << name(type);
  }
  EXPECT_FALSE(takes(DType::f32, 4096));
  EXPECT_FALSE(takes(DType::f16, 4096));
  EXPECT_TRUE(takes(DType::bf16, 16384));
  EXPECT_FALSE(takes(DType::bf16, 65536)) << "x does not fit beside the rings";
}

}  // namespace
}  // namespace minfer::cuda
