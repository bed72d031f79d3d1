#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/delta_net.h"
#include "kernels/forward_batch.h"
#include "kernels/tensor_view.h"

/// The sequences of a step as kernels of gated delta nets see them: rows, and slots of states. All fields are
/// inputs of the step, so they may be read before begin_kernel().
namespace minfer::cuda {

struct DeltaSequences {
  const int32_t* query_start;
  const int32_t* positions;
  const int32_t* state_slots;
  int32_t count;
  int32_t num_slots;
};

inline DeltaSequences delta_sequences(const ForwardBatch& batch, const RecurrentLayer& state) {
  return {batch.query_start, batch.positions, batch.state_slots, batch.num_sequences, state.num_slots};
}

inline void check_delta(const std::string& op, const ForwardBatch& batch, const DeltaNetShape& shape) {
  const bool divides =
      shape.key_heads > 0 && shape.value_heads > 0 && shape.value_heads % shape.key_heads == 0;
  if (!divides || shape.key_size < 1 || shape.value_size < 1 || shape.conv_size < 2) {
    unsupported(op, "value heads that are a multiple of the key heads, sizes from 1 and a convolution from 2",
                std::to_string(shape.key_heads) + " key heads of " + std::to_string(shape.key_size) + ", " +
                    std::to_string(shape.value_heads) + " value heads of " +
                    std::to_string(shape.value_size) + ", " + std::to_string(shape.conv_size) + " inputs");
  }
  if (shape.key_size > kMaxDeltaKeySize) {
    unsupported(op, "heads of q and k of at most " + std::to_string(kMaxDeltaKeySize),
                std::to_string(shape.key_size));
  }
  if (batch.state_slots == nullptr) unsupported(op, "a slot of states for each sequence", "none");
}

/// True if 16-byte accesses are aligned at every multiple of four columns of every row.
inline bool has_aligned_quads(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}

#ifdef __CUDACC__

/// Rows [first, first + count) of a step, and the slot of the state that they continue.
struct DeltaSequence {
  int32_t first;
  int32_t count;
  int32_t slot;
  bool is_padding;
  bool is_fresh;  ///< the state counts as zeros

  __device__ __forceinline__ DeltaSequence(const DeltaSequences& of, int32_t index)
      : first(of.query_start[index]),
        count(of.query_start[index + 1] - first),
        slot(of.state_slots[index]),
        is_padding(count <= 0 || slot < 0 || slot >= of.num_slots),
        is_fresh(is_padding || of.positions[first] == 0) {}
};

/// The sequence of a token. For padding that belongs to no sequence, the number of sequences. All threads of a block call it.
__device__ __forceinline__ int32_t sequence_at(const DeltaSequences& sequences, int32_t token) {
  int32_t ended = 0;
  for (int32_t first = 0; first < sequences.count; first += static_cast<int32_t>(blockDim.x)) {
    const int32_t i = first + static_cast<int32_t>(threadIdx.x);
    ended += __syncthreads_count(i < sequences.count && sequences.query_start[i + 1] <= token);
  }
  return ended;
}

#endif  // __CUDACC__

}  // namespace minfer::cuda
