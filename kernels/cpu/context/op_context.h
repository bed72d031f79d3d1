#pragma once

#include <algorithm>

#include "kernels/base/thread_pool.h"
#include "kernels/cpu/context/workspace.h"
#include "kernels/cpu/lanes/lane_kernels.h"
#include "kernels/tensor_view.h"

/// Shared by the ops of the CPU backend: the resources that they run on, and how a loop over rows is cut.
namespace minfer::cpu {

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

/// Calls body(row) for each row of `x`, on as many threads as its size is worth.
template <class Body>
void for_each_row(const Tensor& x, const OpContext& context, const Body& body) {
  const int64_t pieces = pieces_for(x.rows, x.rows * x.cols, context);
  context.pool->parallel_for(pieces, [&](int64_t piece, int32_t) {
    const IndexRange rows = part_of(x.rows, piece, pieces);
    for (int64_t row = rows.begin; row < rows.end; ++row)
      body(row);
  });
}

}  // namespace minfer::cpu
