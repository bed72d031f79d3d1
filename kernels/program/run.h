#pragma once

#include "kernels/backend.h"
#include "kernels/program/program.h"

namespace minfer {

/// Rows [first, first + count) of a batch's logits.
struct RowSlice {
  int32_t first = 0;
  int32_t count = 0;
};

/// Has the backend run `ops`, the body or the head of a bound program, for a batch; the head for a slice of its logits. Says in the arguments
/// how many rows there are, and what else is the batch's.
void run(const Program& program, std::vector<Op>& ops, Backend& backend, const ForwardBatch& batch,
         RowSlice slice);

}  // namespace minfer
