#pragma once

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "kernels/base/error.h"
#include "kernels/base/thread_pool.h"
#include "kernels/cpu/lanes/lane_kernels.h"
#include "kernels/op_args.h"
#include "kernels/tensor_view.h"

/// Shared by the ops of the CPU backend: the resources that they run on, how a loop over rows is cut, and checks of shapes.
namespace minfer::cpu {

/// Scratch memory of the CPU ops, owned by the backend and lent to one op at a time. It grows to the size
/// that the largest op asked for and never shrinks, so that steps of a known shape do not allocate. Not
/// thread-safe: an op takes its memory before its parallel region.
class Workspace {
 public:
  static constexpr size_t kAlignment = 64;
  static constexpr int64_t aligned(int64_t bytes) {
    constexpr int64_t alignment = kAlignment;
    return (bytes + alignment - 1) / alignment * alignment;
  }

  /// At least `bytes` of uninitialised memory, aligned to kAlignment; valid until the next call. Throws Error
  /// if there is not enough.
  void* take(size_t bytes) {
    if (bytes <= memory_.bytes()) return memory_.data();
    memory_ = {};
    void* data = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (data == nullptr) fail("workspace of the CPU ops: no memory for {} bytes", bytes);
    memory_ = Buffer(data, bytes, [](void* memory) { std::free(memory); });
    return data;
  }

 private:
  Buffer memory_;
};

/// The resources that an op runs on. Non-owning; the backend makes it for each call.
struct OpContext {
  ThreadPool* pool = nullptr;
  Isa isa = Isa::portable;
  const LaneKernels* lanes = nullptr;  ///< of `isa`
  Workspace* workspace = nullptr;
};

/// Below this many elements an op stays on the calling thread: sharing it takes longer than the work.
inline constexpr int64_t kMinParallelElements = 16384;

/// Several, so that other threads take over the pieces of a thread that lost its core for a while.
inline constexpr int64_t kPiecesPerThread = 4;

/// The number of pieces for an op over `elements` elements that can be cut into at most `most` pieces.
inline int64_t pieces_for(int64_t most, int64_t elements, const OpContext& context) {
  if (elements < kMinParallelElements) return 1;
  return std::min<int64_t>(most, kPiecesPerThread * context.pool->threads());
}

/// Floats of scratch memory that a thread needs for an AttentionTile of any rows.
inline int64_t attention_scratch_floats(int64_t head_size, int64_t value_size) {
  const int64_t padded = (head_size + 15) / 16 * 16;
  const int64_t padded_value = (value_size + 15) / 16 * 16;
  const int64_t per_row = padded + padded_value + kKeyTile + 2 * 16 + 1;
  return Workspace::aligned(kQueryTileRows * per_row + kKeyTile * (padded + std::max(padded, padded_value)));
}

/// Calls body(i, thread) for each i < count, on as many threads as `elements` elements are worth.
template <class Body>
void for_each_part(int64_t count, int64_t elements, const OpContext& context, const Body& body) {
  const int64_t pieces = pieces_for(count, elements, context);
  context.pool->parallel_for(pieces, [&](int64_t piece, int32_t thread) {
    const IndexRange range = part_of(count, piece, pieces);
    for (int64_t i = range.begin; i < range.end; ++i)
      body(i, thread);
  });
}

/// Calls body(row) for each row of `x`.
template <class Body>
void for_each_row(const Tensor& x, const OpContext& context, const Body& body) {
  for_each_part(x.rows, x.rows * x.cols, context, [&](int64_t row, int32_t) { body(row); });
}

/// Throws Error unless `x` is [rows, cols] f32 with rows that do not overlap.
inline void check_f32(std::string_view what, const Tensor& x, int64_t rows, int64_t cols) {
  if (x.dtype != DType::f32) fail("{}: type {}, expected f32", what, name(x.dtype));
  if (x.rows != rows || x.cols != cols) {
    fail("{}: shape [{}, {}], expected [{}, {}]", what, x.rows, x.cols, rows, cols);
  }
  if (x.stride < cols) fail("{}: stride {} below {} columns", what, x.stride, cols);
}

/// Throws Error unless `weight` is one f32 row of `cols` elements.
inline void check_vector(std::string_view what, const Weight& weight, int64_t cols, int64_t rows = 1) {
  if (weight.dtype != DType::f32 || weight.count != 1 || weight.rows != rows || weight.cols != cols) {
    fail("{}: {} x [{}, {}] {}, expected [{}, {}] f32", what, weight.count, weight.rows, weight.cols,
         name(weight.dtype), rows, cols);
  }
}

/// Throws Error if a product is to normalise x first: the CPU's products take x as it is (Target::takes_norm()).
inline void check_no_norm(std::string_view what, const FrontNorm& norm) {
  if (norm.weight) fail("{}: a norm in front, expected none on the CPU", what);
}

}  // namespace minfer::cpu
