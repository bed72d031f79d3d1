#pragma once

#include <string_view>

#include "kernels/base/error.h"
#include "kernels/cpu/context/op_context.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

/// The sequences of a step as ops with states see them.
namespace minfer::cpu {

/// A sequence's rows and its slot.
struct SequenceRows {
  int64_t first;
  int32_t count;
  int32_t slot;
  bool is_fresh;  ///< the state counts as zeros
};

inline SequenceRows rows_of(const ForwardBatch& batch, int64_t sequence) {
  const int32_t first = batch.query_start[sequence];
  return {first, batch.query_start[sequence + 1] - first, batch.state_slots[sequence],
          batch.positions[first] == 0};
}

/// Throws Error unless each sequence has a slot.
inline void check_slots(std::string_view op, const ForwardBatch& batch, const RecurrentLayer& state) {
  if (batch.state_slots == nullptr) fail("{}: no slots of states", op);
  for (int32_t i = 0; i < batch.num_sequences; ++i) {
    if (batch.state_slots[i] < 0 || batch.state_slots[i] >= state.num_slots)
      fail("{}: slot {} of sequence {}, expected 0 to {}", op, batch.state_slots[i], i, state.num_slots - 1);
  }
}

/// Calls body(sequence, head, thread) for each head, or other independent part, of each sequence. `elements`: of the whole op.
template <class Body>
void for_each_head(const ForwardBatch& batch, int64_t heads, int64_t elements, const OpContext& context,
                   const Body& body) {
  const int64_t all = batch.num_sequences * heads;
  const int64_t pieces = pieces_for(all, elements, context);
  context.pool->parallel_for(pieces, [&](int64_t piece, int32_t thread) {
    const IndexRange range = part_of(all, piece, pieces);
    for (int64_t i = range.begin; i < range.end; ++i)
      body(i / heads, i % heads, thread);
  });
}

}  // namespace minfer::cpu
