#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/forward_batch.h"
#include "kernels/op.h"

namespace minfer::cuda {

/// What Nsight Systems and Nsight Compute show of a step while the host launches it: ranges of the domain "minfer", one inside the
/// other: "step" (its number is the payload), its phase ("prefill", "decode", "mixed"), "layer 3", the op's name. A replayed graph
/// has the first two only. Names are registered once; a range that nobody listens to costs a few nanoseconds. In a build without
/// the NVTX headers all of it does nothing.
class NvtxRanges {
 public:
  NvtxRanges();
  ~NvtxRanges();

  /// The ops that begin_op() is called with.
  void name_ops(std::span<const OpInfo> ops);
  void begin_step(int64_t step, const ForwardBatch& batch);
  void begin_op(OpId op);
  void end_op();
  void end_step();

 private:
  struct Names;
  std::unique_ptr<Names> names_;
  int32_t layer_ = -1;  ///< whose range is open; -1: none
};

}  // namespace minfer::cuda
