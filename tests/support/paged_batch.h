#pragma once

#include <vector>

#include "tests/support/cuda/device_data.h"

namespace minfer::test {

/// A sequence of a test's step: `context` tokens, of which the last `queries` are computed.
struct SequenceShape {
  int32_t context;
  int32_t queries;
};

/// The inputs of a step over a paged cache. Blocks are assigned at random; a few belong to no sequence.
class PagedBatch {
 public:
  PagedBatch(Backend& backend, std::vector<SequenceShape> sequences, int32_t block_size, uint64_t seed);

  const ForwardBatch& batch() const { return batch_; }
  const std::vector<SequenceShape>& sequences() const { return sequences_; }
  int32_t block_size() const { return block_size_; }
  int32_t num_blocks() const { return num_blocks_; }
  int64_t num_slots() const { return int64_t{num_blocks_} * block_size_; }
  /// The slot of a sequence's token: block * block_size + offset.
  int64_t slot(size_t sequence, int32_t position) const;
  /// Makes the block table entries of blocks in which no query of a window sees a key point outside the device's memory.
  void hide_blocks_outside(AttentionWindow window);

 private:
  Backend* backend_;
  std::vector<SequenceShape> sequences_;
  int32_t block_size_;
  int32_t num_blocks_ = 0;
  int32_t max_blocks_ = 0;
  std::vector<int32_t> table_;
  DeviceArray<int32_t> positions_, slots_, query_start_, context_len_, block_table_;
  ForwardBatch batch_;
};

/// K or V of one layer, [num_blocks, kv_heads, block_size, head_size]. Slots that belong to no
/// token hold NaN.
class PagedCache {
 public:
  PagedCache(Backend& backend, const PagedBatch& batch, DType dtype, int32_t kv_heads, int32_t head_size);
  /// Fills the rows of a sequence's positions [0, count) from `rows` [count, kv_heads * head_size], rounded
  /// to the type. Returns the stored values.
  std::vector<float> store(const PagedBatch& batch, size_t sequence, std::span<const float> rows);
  void upload();

  /// The row of one head in a slot, widened.
  std::vector<float> row(int64_t slot, int32_t kv_head) const;
  void* data() const { return device_.data(); }
  /// True if the cache on the device is byte for byte as uploaded, except in the slots of `except`.
  bool unchanged(std::span<const int64_t> except = {}) const;

 private:
  size_t offset(int64_t slot, int32_t kv_head) const;

  Backend* backend_;
  DType dtype_;
  int32_t block_size_;
  int32_t kv_heads_;
  int32_t head_size_;
  std::vector<uint8_t> host_;
  DeviceArray<uint8_t> device_;
};

}  // namespace minfer::test
