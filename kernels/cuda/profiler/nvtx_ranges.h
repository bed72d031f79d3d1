#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/forward_batch.h"
#include "kernels/op.h"

namespace minfer::cuda {

/// The ranges that Nsight Systems and Nsight Compute show for a step while the host launches it, nested in the
/// domain "minfer": "step" (its number is the payload), its phase ("prefill", "decode", "mixed"), "layer 3",
/// the op's name. A replayed graph has the first two only. Names are registered once. A range costs a few
/// nanoseconds if no tool listens. In a build without the NVTX headers the class does nothing.
class NvtxRanges {
 public:
  NvtxRanges();
  ~NvtxRanges();

  /// Names the ops that begin_op() is called with.
  void name_ops(std::span<const OpInfo> ops);
  void begin_step(int64_t step, const ForwardBatch& batch);
  void begin_op(OpId op);
  void end_op();
  void end_step();

 private:
  struct Names;
  std::unique_ptr<Names> names_;
  int32_t layer_ = -1;  ///< the layer whose range is open; -1: none
};

}  // namespace minfer::cuda
