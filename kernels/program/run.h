#pragma once

#include "kernels/backend.h"
#include "kernels/program/program.h"

namespace minfer {

/// Rows [first, first + count) of a batch's logits.
struct RowSlice {
  int32_t first = 0;
  int32_t count = 0;
};

/// Runs `ops`, the body or the head of a bound program, on the backend for a batch; the head for one slice of its logits. Sets the number
/// of rows and the batch's other properties in the arguments.
void run(const Program& program, std::vector<Op>& ops, Backend& backend, const ForwardBatch& batch,
         RowSlice slice);

}  // namespace minfer
