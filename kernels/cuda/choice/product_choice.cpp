#include "kernels/cuda/choice/product_choice.h"

#include <algorithm>
#include <array>

#include "kernels/base/error.h"
#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/device/fp8_activations.h"
#include "kernels/cuda/weights/weight_layout.h"

namespace minfer::cuda {
namespace {

/// A product and a device, with the questions that candidates ask about them.
struct Asked {
  const ProductShape& s;
  int64_t tokens;
  const DeviceFacts& device;

  bool is_one_type() const { return !s.gate_up || s.weight == s.up; }
  bool is_single() const { return !s.gate_up && !s.has_norm; }
  DType x() const { return s.has_norm ? DType::bf16 : s.x; }
  /// True if x can be copied in boxes of eight columns, and rows of the output stored.
  bool fits_boxes() const {
    return s.cols % 8 == 0 && s.rows % 4 == 0 && s.x_is_aligned && s.out_is_aligned &&
           (!s.gate_up || s.up_is_behind);
  }
  bool is_fp8() const {
    const bool takes_out = !s.gate_up || (s.out == DType::fp8 && s.up_is_behind);
    return device.has_wgmma && s.x == DType::fp8 && s.weight == DType::fp8 && is_one_type() && !s.has_norm &&
           s.cols % kFp8Columns == 0 && takes_out;
  }
  bool is_streamed() const {
    return device.has_wgmma && s.x == DType::bf16 && is_one_type() && !s.has_norm && fits_boxes();
  }
  /// True for few tokens; for gate and up, for which cuBLASLt needs one more kernel and f32 memory; and for tiles that fill 90 % of a
  /// launch's rounds, unless they are added to the output (cuBLASLt is then 4 to 8 % faster) or take several launches (14 %).
  bool is_worth_streaming() const {
    constexpr int64_t kLeastTokens = 3, kFewTokens = 128, kTileRows = 2 * kWarpgroupRows;
    if (tokens < kLeastTokens) return false;
    if (tokens <= kFewTokens || s.gate_up) return true;
    if (s.adds || tokens <= kMostTokensOfTile || tokens > kMostStreamedTokens) return false;
    const int64_t tiles =
        (s.rows + kTileRows - 1) / kTileRows * ((tokens + kMostTokensOfTile - 1) / kMostTokensOfTile);
    return 10 * tiles >= 9 * ((tiles + device.sms - 1) / device.sms * device.sms);
  }
  int64_t most_strip_tokens() const {
    if (s.weight != DType::bf16 && !is_tiled(s.weight)) return 0;
    return is_rare(s.weight) ? 1 : kStripTokens;
  }
  bool norms_x() const {
    const int64_t x_bytes = (s.cols + 7) / 8 * 16;
    return tokens == 1 && s.x == DType::f32 &&
           (s.weight != DType::bf16 || kBf16NormBytes + x_bytes <= device.shared_bytes);
  }
  /// True if gate and up go through scratch memory: if one of them is dequantised to x's type, both are.
  bool dequantises_pair() const {
    return std::ranges::any_of(std::array{s.weight, s.up}, [&](DType type) {
      ProductShape one = s;
      one.weight = type;
      one.x = x();
      one.out = DType::f32;
      one.gate_up = one.has_norm = false;
      return choose(one, tokens, device) == ProductKernel::dequantise_matmul;
    });
  }
};

struct Candidate {
  ProductKernel kernel;
  bool (*takes)(const Asked&);
  /// True if the candidates in front do not take the product or are slower, as measured on an H200.
  bool (*is_fastest)(const Asked&);
};

bool always(const Asked&) {
  return true;
}

constexpr Candidate kCandidates[] = {
    {ProductKernel::fp8_gemm,
     [](const Asked& a) { return a.is_fp8() && a.s.rows % (a.s.gate_up ? 128 : 256) == 0; },
     [](const Asked& a) { return a.tokens > 128; }},
    {ProductKernel::fp8_stream,
     [](const Asked& a) { return a.is_fp8() && a.s.rows % (a.s.gate_up ? kFp8Columns : 4) == 0; }, always},
    {ProductKernel::stream,
     [](const Asked& a) {
       return a.is_streamed() && a.s.weight == DType::bf16 && a.s.rows % 8 == 0 && a.s.weight_is_aligned &&
              a.s.out_takes_pieces;
     },
     [](const Asked& a) { return a.is_worth_streaming(); }},
    {ProductKernel::tile_stream,
     [](const Asked& a) {
       return a.is_streamed() && is_tiled(a.s.weight) && a.s.cols % kStageColumns == 0 &&
              (!a.s.gate_up || (a.s.rows % (2 * kStripRows) == 0 && a.s.out_takes_pieces));
     },
     [](const Asked& a) { return a.tokens > a.most_strip_tokens(); }},
    {ProductKernel::strip,
     [](const Asked& a) {
       return a.x() == DType::bf16 && a.is_one_type() && a.tokens <= a.most_strip_tokens() &&
              a.s.cols % 8 == 0 && a.s.x_is_aligned && (!a.s.has_norm || a.norms_x());
     },
     always},
    {ProductKernel::split_product,
     [](const Asked& a) {
       return a.is_single() && a.s.x == DType::bf16 && a.s.weight == DType::f32 && a.s.cols % 8 == 0 &&
              a.s.x_is_aligned && a.s.weight_is_aligned;
     },
     [](const Asked& a) { return a.tokens >= 128; }},
    {ProductKernel::row_product,
     [](const Asked& a) {
       const bool is_plain = a.s.weight == DType::f32 || (a.s.weight == DType::f16 && a.s.x == DType::bf16);
       return a.is_single() && is_plain && (a.s.x == DType::f32 || a.s.x == DType::bf16);
     },
     [](const Asked& a) {
       if (a.s.weight == DType::f32) return a.s.x == DType::bf16 || a.tokens <= 8;
       return a.tokens <= 16 || a.s.cols % 8 != 0;
     }},
    {ProductKernel::matmul,
     [](const Asked& a) {
       return a.is_single() && a.s.weight == a.s.x && (a.s.x == DType::f32 || a.s.x == DType::bf16);
     },
     always},
    {ProductKernel::f16_matmul,  // cuBLASLt writes no bf16 from f16
     [](const Asked& a) {
       return a.is_single() && a.s.weight == DType::f16 && a.s.x == DType::bf16 && a.s.out == DType::f32;
     },
     always},
    {ProductKernel::dequantise_matmul,
     [](const Asked& a) {
       if (a.x() != DType::f32 && a.x() != DType::bf16) return false;
       return a.s.gate_up ? a.dequantises_pair()
                          : a.is_single() && a.s.weight != DType::f32 && a.s.weight != a.s.x;
     },
     always},
    {ProductKernel::apart, [](const Asked& a) { return a.s.gate_up && a.s.x != DType::fp8; }, always},
};

/// True if any kernel takes the product.
bool is_taken(const Asked& asked) {
  return std::ranges::any_of(kCandidates, [&](const Candidate& candidate) { return candidate.takes(asked); });
}

}  // namespace

ProductKernel choose(const ProductShape& shape, int64_t tokens, const DeviceFacts& device) {
  const Asked asked{shape, tokens, device};
  for (const Candidate& candidate : kCandidates) {
    if (candidate.takes(asked) && candidate.is_fastest(asked)) return candidate.kernel;
  }
  fail("product on CUDA: no kernel takes {} weights {} [{}, {}] past {} tokens of {}{}, to {}",
       shape.gate_up ? 2 : 1, name(shape.weight), shape.rows, shape.cols, tokens, name(shape.x),
       shape.has_norm ? " with a norm" : "", name(shape.out));
}

bool takes_fp8(std::span<const Weight> weights, int64_t tokens, int32_t head_size,
               const DeviceFacts& device) {
  return tokens > 1 && (head_size == 0 || head_size == kFp8Columns) &&
         std::ranges::all_of(weights, [&](const Weight& weight) {
           const ProductShape shape{.weight = weight.dtype,
                                    .x = DType::fp8,
                                    .out = DType::f32,
                                    .rows = weight.rows,
                                    .cols = weight.cols};
           return weight.count == 1 && is_taken({shape, tokens, device});
         });
}

bool takes_norm(std::span<const Weight> weights, int64_t tokens, const DeviceFacts& device) {
  return std::ranges::all_of(weights, [&](const Weight& weight) {
    const ProductShape shape{
        .weight = weight.dtype, .x = DType::f32, .rows = weight.rows, .cols = weight.cols, .has_norm = true};
    return weight.count == 1 && is_taken({shape, tokens, device});
  });
}

}  // namespace minfer::cuda
