#include "kernels/cuda/weights/weight_memory.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/weights/weights.h"

namespace minfer::cuda {
namespace {

constexpr size_t kStagingBytes = size_t{32} << 20;
constexpr size_t kCopyBytes = size_t{1} << 20;  ///< that a thread copies at a time
/// Memory bounds copies, and page faults bound reading a file's pages: more threads than this gain
/// nothing.
constexpr int32_t kMostThreads = 16;

/// Copies rows of `row_bytes` that lie `stride` bytes apart to where they have no gaps.
void copy_in_parallel(void* to, const std::byte* from, size_t stride, size_t row_bytes, int64_t rows,
                      ThreadPool& pool) {
  const auto rows_of_piece = static_cast<int64_t>(std::max<size_t>(1, kCopyBytes / row_bytes));
  const int64_t pieces = (rows + rows_of_piece - 1) / rows_of_piece;
  pool.parallel_for(pieces, [&](int64_t piece, int32_t) {
    const int64_t first = piece * rows_of_piece;
    const auto count = static_cast<size_t>(std::min(rows_of_piece, rows - first));
    std::byte* out = static_cast<std::byte*>(to) + static_cast<size_t>(first) * row_bytes;
    const std::byte* in = from + static_cast<size_t>(first) * stride;
    if (stride == row_bytes) {
      std::memcpy(out, in, count * row_bytes);
    } else {
      for (size_t row = 0; row < count; ++row)
        std::memcpy(out + row * row_bytes, in + row * stride, row_bytes);
    }
  });
}

}  // namespace

void WeightMemory::reserve(std::span<const HostTensor> tensors) {
  size_t bytes = 0;
  for (const HostTensor& tensor : tensors)
    bytes += reserved_bytes(tensor);
  memory_ = DeviceBuffer(bytes, "weights");
}

WeightMemory::Staging& WeightMemory::next_staging() {
  Staging& staging = staging_[num_chunks_++ % staging_.size()];
  if (staging.host.bytes() == 0) {
    staging = {PinnedBuffer(kStagingBytes, "staging of weights"),
               DeviceBuffer(kStagingBytes, "staging of weights"), make_event()};
  } else {
    check(cudaEventSynchronize(staging.is_free.get()), "loading weights");
  }
  return staging;
}

Weight WeightMemory::load(cudaStream_t stream, const HostTensor& tensor) {
  const size_t bytes = device_bytes(tensor);
  if (bytes > memory_.bytes() - used_bytes_)
    fail("tensor {}: {} bytes of device memory were not reserved", tensor.name, bytes);
  if (!copiers_) copiers_ = std::make_unique<ThreadPool>(std::min(num_cores(), kMostThreads));
  void* data = memory_.as<std::byte>() + used_bytes_;
  used_bytes_ += bytes;
  for (int64_t matrix = 0; matrix < tensor.count; ++matrix)
    load_matrix(stream, tensor, matrix, data);
  return device_weight(tensor, data);
}

void WeightMemory::load_matrix(cudaStream_t stream, const HostTensor& tensor, int64_t matrix, void* data) {
  const size_t bytes_of_row = row_bytes(tensor.dtype, tensor.cols);
  const int64_t granularity = row_granularity(tensor);
  const int64_t rows_of_chunk =
      static_cast<int64_t>(kStagingBytes / bytes_of_row) / granularity * granularity;
  if (rows_of_chunk == 0) {
    fail("tensor {}: {} rows of {} bytes do not fit into the staging memory of {} bytes", tensor.name,
         granularity, bytes_of_row, kStagingBytes);
  }
  for (int64_t row = 0; row < tensor.rows; row += rows_of_chunk) {
    const int64_t rows = std::min(rows_of_chunk, tensor.rows - row);
    Staging& staging = next_staging();
    copy_in_parallel(staging.host.data(), tensor.row(matrix, row), tensor.stride_of_rows(), bytes_of_row,
                     rows, *copiers_);
    check(cudaMemcpyAsync(staging.device.data(), staging.host.data(),
                          static_cast<size_t>(rows) * bytes_of_row, cudaMemcpyHostToDevice, stream),
          "loading weights");
    store_rows(stream, tensor, matrix * tensor.rows + row, rows, staging.device.data(), data);
    check(cudaEventRecord(staging.is_free.get(), stream), "loading weights");
  }
}

void WeightMemory::end_loading(cudaStream_t stream) {
  check(cudaStreamSynchronize(stream), "loading weights");
  staging_ = {};
  copiers_.reset();
}

}  // namespace minfer::cuda
