#pragma once

#include <cstdint>

#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// The most query tokens that sequences [first_sequence, first_sequence + num_sequences) can bring, as far as
/// the host knows.
inline int32_t max_query_tokens(const ForwardBatch& batch, const AttentionArgs& args) {
  if (args.first_sequence == 0 && args.num_sequences == batch.num_decode_sequences) {
    return batch.num_decode_tokens;
  }
  if (args.first_sequence >= batch.num_decode_sequences) return batch.num_tokens - batch.num_decode_tokens;
  return batch.num_tokens;
}

}  // namespace minfer::cuda
