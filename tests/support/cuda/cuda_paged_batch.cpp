#include "tests/support/cuda/cuda_paged_batch.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/random_data.h"

namespace minfer::test {
namespace {

constexpr int32_t kCudaSpareBlocks = 3;

int32_t longest(std::span<const CudaSequence> sequences) {
  int32_t context = 1;
  for (const CudaSequence& s : sequences)
    context = std::max(context, s.context);
  return context;
}

}  // namespace

CudaPagedBatch::CudaPagedBatch(std::vector<CudaSequence> sequences, int32_t num_decode, int32_t block_size,
                               uint64_t seed, int32_t max_context, AttentionWindow window)
    : sequences_(std::move(sequences)),
      block_size_(block_size),
      max_blocks_((std::max(max_context, longest(sequences_)) + block_size - 1) / block_size),
      num_blocks_(static_cast<int32_t>(sequences_.size()) * max_blocks_ + kCudaSpareBlocks),
      window_(window),
      table_(permutation(num_blocks_, seed)),
      positions_(positions()),
      slots_(slots()),
      query_start_(query_start()),
      context_len_(context_len()),
      block_table_(table_) {
  assign(sequences_);
  batch_.num_tokens = query_start().back();
  batch_.num_sequences = static_cast<int32_t>(sequences_.size());
  batch_.num_decode_sequences = num_decode;
  batch_.num_decode_tokens = query_start()[static_cast<size_t>(num_decode)];
  batch_.max_blocks = max_blocks_;
  batch_.positions = positions_.data();
  batch_.slots = slots_.data();
  batch_.query_start = query_start_.data();
  batch_.context_len = context_len_.data();
  batch_.block_table = block_table_.data();
}

void CudaPagedBatch::assign(std::vector<CudaSequence> sequences) {
  sequences_ = std::move(sequences);
  positions_.assign(positions());
  slots_.assign(slots());
  query_start_.assign(query_start());
  context_len_.assign(context_len());
  std::vector<int32_t> table = table_;
  std::fill(table.end() - kCudaSpareBlocks, table.end(), std::numeric_limits<int32_t>::max());
  for (size_t s = 0; s < sequences_.size(); ++s) {  // blocks beyond the context: must not be read
    const int32_t used = (sequences_[s].context + block_size_ - 1) / block_size_;
    const auto row = table.begin() + static_cast<ptrdiff_t>(s) * max_blocks_;
    std::fill(row + used, row + max_blocks_, std::numeric_limits<int32_t>::max());
    if (!window_) continue;
    const int32_t first_seen = window_.first_seen(sequences_[s].context - sequences_[s].queries);
    std::fill(row, row + first_seen / block_size_, table_.back());
  }
  block_table_.assign(table);
}

std::vector<int32_t> CudaPagedBatch::positions() const {
  std::vector<int32_t> result;
  for (const auto& [context, queries] : sequences_) {
    for (int32_t i = 0; i < queries; ++i)
      result.push_back(std::max(0, context - queries + i));
  }
  return result;
}

std::vector<int32_t> CudaPagedBatch::slots() const {
  std::vector<int32_t> result;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const auto [context, queries] = sequences_[s];
    for (int32_t i = 0; i < queries; ++i)
      result.push_back(context == 0 ? -1 : slot(s, context - queries + i));
  }
  return result;
}

std::vector<int32_t> CudaPagedBatch::query_start() const {
  std::vector<int32_t> result{0};
  for (const CudaSequence& s : sequences_)
    result.push_back(result.back() + s.queries);
  return result;
}

std::vector<int32_t> CudaPagedBatch::context_len() const {
  std::vector<int32_t> result;
  for (const CudaSequence& s : sequences_)
    result.push_back(s.context);
  return result;
}

int32_t CudaPagedBatch::slot(size_t sequence, int32_t position) const {
  const int32_t block = table_[sequence * static_cast<size_t>(max_blocks_) + position / block_size_];
  return block * block_size_ + position % block_size_;
}

CudaPagedCache::CudaPagedCache(const CudaPagedBatch& batch, DType dtype, int32_t kv_heads, int32_t head_size)
    : dtype_(dtype),
      block_size_(batch.block_size()),
      kv_heads_(kv_heads),
      head_size_(head_size),
      host_(row_bytes(dtype, int64_t{batch.num_blocks()} * batch.block_size() * kv_heads * head_size)),
      device_(host_) {
  clear();
  upload();
}

void CudaPagedCache::clear() {
  const std::vector<uint8_t> nan = encode(std::vector<float>{NAN}, dtype_);
  for (size_t i = 0; i < host_.size(); ++i)
    host_[i] = nan[i % nan.size()];
}

size_t CudaPagedCache::offset(int32_t slot, int32_t kv_head) const {
  const int64_t row = (int64_t{slot / block_size_} * kv_heads_ + kv_head) * block_size_ + slot % block_size_;
  return static_cast<size_t>(row) * row_bytes(dtype_, head_size_);
}

void CudaPagedCache::store(const CudaPagedBatch& batch, size_t sequence, std::span<const float> rows) {
  const std::vector<uint8_t> bytes = encode(rows, dtype_);
  const size_t head_bytes = row_bytes(dtype_, head_size_);
  for (size_t i = 0; i < bytes.size() / head_bytes; ++i) {
    const auto position = static_cast<int32_t>(i) / kv_heads_;
    const auto kv_head = static_cast<int32_t>(i) % kv_heads_;
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(i * head_bytes), head_bytes,
                host_.begin() + static_cast<ptrdiff_t>(offset(batch.slot(sequence, position), kv_head)));
  }
}

std::vector<float> CudaPagedCache::row(int32_t slot) const {
  const std::vector<uint8_t> bytes = device_.values();
  std::vector<float> result;
  for (int32_t h = 0; h < kv_heads_; ++h) {
    const std::vector<float> head =
        decode(std::span(bytes).subspan(offset(slot, h), row_bytes(dtype_, head_size_)), dtype_);
    result.insert(result.end(), head.begin(), head.end());
  }
  return result;
}

bool CudaPagedCache::unchanged(std::span<const int32_t> except) const {
  std::vector<uint8_t> bytes = device_.values();
  for (const int32_t slot : except) {
    for (int32_t h = 0; h < kv_heads_; ++h) {
      const auto at = static_cast<ptrdiff_t>(offset(slot, h));
      std::copy_n(host_.begin() + at, row_bytes(dtype_, head_size_), bytes.begin() + at);
    }
  }
  return bytes == host_;
}

}  // namespace minfer::test
