#include "tests/support/paged_batch.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/half.h"
#include "tests/support/random_data.h"

namespace minfer::test {
namespace {

constexpr int32_t kSpareBlocks = 3;

void store_element(float value, DType dtype, uint8_t* out) {
  if (dtype == DType::f32) {
    std::memcpy(out, &value, sizeof value);
  } else {
    const uint16_t bits = dtype == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
    std::memcpy(out, &bits, sizeof bits);
  }
}

float load_element(const uint8_t* in, DType dtype) {
  float value;
  uint16_t bits;
  if (dtype == DType::f32) {
    std::memcpy(&value, in, sizeof value);
    return value;
  }
  std::memcpy(&bits, in, sizeof bits);
  return dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

}  // namespace

PagedBatch::PagedBatch(Backend& backend, std::vector<SequenceShape> sequences, int32_t block_size,
                       uint64_t seed)
    : backend_(&backend), sequences_(std::move(sequences)), block_size_(block_size) {
  int32_t used = 0;
  for (const SequenceShape& s : sequences_) {
    const int32_t blocks = (s.context + block_size - 1) / block_size;
    max_blocks_ = std::max(max_blocks_, blocks);
    used += blocks;
  }
  num_blocks_ = used + kSpareBlocks;
  const std::vector<int32_t> order = permutation(num_blocks_, seed);
  table_.assign(sequences_.size() * static_cast<size_t>(max_blocks_), std::numeric_limits<int32_t>::max());
  std::vector<int32_t> positions, slots, query_start{0}, context_len;
  size_t next = 0;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const auto [context, queries] = sequences_[s];
    const int32_t blocks = (context + block_size - 1) / block_size;
    for (int32_t b = 0; b < blocks; ++b)
      table_[s * static_cast<size_t>(max_blocks_) + b] = order[next++];
    for (int32_t p = context - queries; p < context; ++p) {
      positions.push_back(p);
      slots.push_back(static_cast<int32_t>(slot(s, p)));
    }
    query_start.push_back(static_cast<int32_t>(positions.size()));
    context_len.push_back(context);
  }
  positions_ = DeviceArray<int32_t>(backend, positions);
  slots_ = DeviceArray<int32_t>(backend, slots);
  query_start_ = DeviceArray<int32_t>(backend, query_start);
  context_len_ = DeviceArray<int32_t>(backend, context_len);
  block_table_ = DeviceArray<int32_t>(backend, table_);
  batch_.num_tokens = static_cast<int32_t>(positions.size());
  batch_.num_sequences = static_cast<int32_t>(sequences_.size());
  batch_.max_blocks = max_blocks_;
  batch_.positions = positions_.data();
  batch_.slots = slots_.data();
  batch_.query_start = query_start_.data();
  batch_.context_len = context_len_.data();
  batch_.block_table = block_table_.data();
}

int64_t PagedBatch::slot(size_t sequence, int32_t position) const {
  const int64_t block = table_[sequence * static_cast<size_t>(max_blocks_) + position / block_size_];
  return block * block_size_ + position % block_size_;
}

void PagedBatch::hide_blocks_outside(AttentionWindow window) {
  std::vector<int32_t> table = table_;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const auto [context, queries] = sequences_[s];
    const int32_t hidden = window.first_seen(context - queries) / block_size_;
    std::fill_n(table.begin() + static_cast<ptrdiff_t>(s) * max_blocks_, hidden,
                std::numeric_limits<int32_t>::max());
  }
  block_table_ = DeviceArray<int32_t>(*backend_, table);
  batch_.block_table = block_table_.data();
}

PagedCache::PagedCache(Backend& backend, const PagedBatch& batch, DType dtype, int32_t kv_heads,
                       int32_t head_size)
    : backend_(&backend),
      dtype_(dtype),
      block_size_(batch.block_size()),
      kv_heads_(kv_heads),
      head_size_(head_size),
      host_(static_cast<size_t>(batch.num_slots()) * row_bytes(dtype, int64_t{kv_heads} * head_size)) {
  const size_t element = row_bytes(dtype, 1);
  for (size_t at = 0; at < host_.size(); at += element) {
    store_element(std::numeric_limits<float>::quiet_NaN(), dtype, host_.data() + at);
  }
  upload();
}

size_t PagedCache::offset(int64_t slot, int32_t kv_head) const {
  const int64_t row = (slot / block_size_ * kv_heads_ + kv_head) * block_size_ + slot % block_size_;
  return static_cast<size_t>(row) * row_bytes(dtype_, head_size_);
}

std::vector<float> PagedCache::store(const PagedBatch& batch, size_t sequence, std::span<const float> rows) {
  const int64_t width = int64_t{kv_heads_} * head_size_;
  const size_t element = row_bytes(dtype_, 1);
  std::vector<float> stored(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto position = static_cast<int32_t>(static_cast<int64_t>(i) / width);
    const auto column = static_cast<int32_t>(static_cast<int64_t>(i) % width);
    uint8_t* at = host_.data() + offset(batch.slot(sequence, position), column / head_size_) +
                  static_cast<size_t>(column % head_size_) * element;
    store_element(rows[i], dtype_, at);
    stored[i] = load_element(at, dtype_);
  }
  return stored;
}

void PagedCache::upload() {
  device_ = DeviceArray<uint8_t>(*backend_, host_);
}

std::vector<float> PagedCache::row(int64_t slot, int32_t kv_head) const {
  const std::vector<uint8_t> bytes = device_.values();
  std::vector<float> row;
  for (int32_t d = 0; d < head_size_; ++d) {
    row.push_back(load_element(
        bytes.data() + offset(slot, kv_head) + static_cast<size_t>(d) * row_bytes(dtype_, 1), dtype_));
  }
  return row;
}

bool PagedCache::unchanged(std::span<const int64_t> except) const {
  std::vector<uint8_t> bytes = device_.values();
  for (const int64_t slot : except) {
    for (int32_t h = 0; h < kv_heads_; ++h) {
      std::copy_n(host_.begin() + static_cast<ptrdiff_t>(offset(slot, h)), row_bytes(dtype_, head_size_),
                  bytes.begin() + static_cast<ptrdiff_t>(offset(slot, h)));
    }
  }
  return bytes == host_;
}

}  // namespace minfer::test
