#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/forward_batch.h"
#include "kernels/op_args.h"
#include "tests/support/cuda/cuda_data.h"

namespace minfer::test {

/// A sequence of a test's step: `context` tokens, of which the last `queries` are computed. Context 0:
/// padding of a captured graph, with one query token without a slot.
struct CudaSequence {
  int32_t context;
  int32_t queries;
};

/// The inputs of a step over a paged cache in device memory. Blocks are assigned at random; a few belong to
/// no sequence. The device pointers stay valid while other contexts with the same query counts are assigned.
class CudaPagedBatch {
 public:
  /// The first `num_decode` sequences are decoding. No context that is assigned later exceeds `max_context` (0: the
  /// longest one now). With a `window`, block table entries for blocks in which no query of it sees a key name a block of
  /// no sequence.
  CudaPagedBatch(std::vector<CudaSequence> sequences, int32_t num_decode, int32_t block_size, uint64_t seed,
                 int32_t max_context = 0, AttentionWindow window = {});
  void assign(std::vector<CudaSequence> sequences);

  const ForwardBatch& batch() const { return batch_; }
  const std::vector<CudaSequence>& sequences() const { return sequences_; }
  int32_t block_size() const { return block_size_; }
  int32_t num_blocks() const { return num_blocks_; }
  /// The slot of a sequence's token: block * block_size + offset.
  int32_t slot(size_t sequence, int32_t position) const;

 private:
  std::vector<int32_t> positions() const;
  std::vector<int32_t> slots() const;
  std::vector<int32_t> query_start() const;
  std::vector<int32_t> context_len() const;

  std::vector<CudaSequence> sequences_;
  int32_t block_size_;
  int32_t max_blocks_;
  int32_t num_blocks_;
  AttentionWindow window_;
  std::vector<int32_t> table_;
  CudaArray<int32_t> positions_, slots_, query_start_, context_len_, block_table_;
  ForwardBatch batch_;
};

/// K or V of one layer, [num_blocks, kv_heads, block_size, head_size]. Slots that belong to no
/// token hold NaN.
class CudaPagedCache {
 public:
  CudaPagedCache(const CudaPagedBatch& batch, DType dtype, int32_t kv_heads, int32_t head_size);
  /// Resets all rows.
  void clear();
  /// Fills the rows of a sequence's positions from `rows` [count, kv_heads * head_size], rounded to the type.
  void store(const CudaPagedBatch& batch, size_t sequence, std::span<const float> rows);
  void upload() { device_.assign(host_); }

  void* data() const { return device_.data(); }
  /// The rows of all KV heads in a slot on the device, side by side.
  std::vector<float> row(int32_t slot) const;
  /// True if the cache on the device is byte for byte as uploaded, except in the slots of `except`.
  bool unchanged(std::span<const int32_t> except = {}) const;

 private:
  size_t offset(int32_t slot, int32_t kv_head) const;

  DType dtype_;
  int32_t block_size_;
  int32_t kv_heads_;
  int32_t head_size_;
  std::vector<uint8_t> host_;
  CudaArray<uint8_t> device_;
};

}  // namespace minfer::test
