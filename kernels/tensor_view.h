#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace minfer {

/// A tensor in host memory as a file or a generator gives it, or a part of one: `count` matrices of [rows, cols], row-major. A
/// vector is one row. Non-owning.
struct HostTensor {
  std::string name;
  const void* data = nullptr;
  DType dtype = DType::f32;
  int64_t count = 1;         ///< experts of a mixture, else 1
  int64_t rows = 1;          ///< output features
  int64_t cols = 0;          ///< input features, contiguous
  size_t row_stride = 0;     ///< bytes from row to row; 0: no gap
  size_t matrix_stride = 0;  ///< bytes from matrix to matrix; 0: no gap
  /// The type that a backend quantises the elements to at load: fp8, for plain types; none: it takes them as they are.
  std::optional<DType> quantise_to = {};

  DType loaded_dtype() const { return quantise_to.value_or(dtype); }
  size_t stride_of_rows() const { return row_stride > 0 ? row_stride : row_bytes(dtype, cols); }
  size_t stride_of_matrices() const {
    return matrix_stride > 0 ? matrix_stride : static_cast<size_t>(rows) * stride_of_rows();
  }
  const std::byte* row(int64_t matrix, int64_t index) const {
    return static_cast<const std::byte*>(data) + static_cast<size_t>(matrix) * stride_of_matrices() +
           static_cast<size_t>(index) * stride_of_rows();
  }
  bool has_gaps() const {
    return stride_of_rows() != row_bytes(dtype, cols) ||
           (count > 1 && stride_of_matrices() != static_cast<size_t>(rows) * stride_of_rows());
  }

  /// Bytes of the elements, without gaps.
  size_t bytes() const { return static_cast<size_t>(count * rows) * row_bytes(dtype, cols); }
  size_t loaded_bytes() const { return static_cast<size_t>(count * rows) * row_bytes(loaded_dtype(), cols); }
  /// For people: row-major, [count, rows, cols] without leading dimensions of 1.
  std::vector<int64_t> shape() const {
    if (count > 1) return {count, rows, cols};
    if (rows > 1) return {rows, cols};
    return {cols};
  }
};

/// A weight as a backend holds it, in its own layout: `count` matrices of [rows, cols]. Non-owning handle,
/// cheap to copy; valid as long as the backend that made it.
struct Weight {
  const void* data = nullptr;
  DType dtype = DType::f32;
  int64_t count = 1;
  int64_t rows = 0;
  int64_t cols = 0;
  std::optional<DType> file_dtype = {};  ///< type in the file, if the backend keeps it in another type

  explicit operator bool() const { return data != nullptr; }
  /// Bytes that a kernel reads when it streams one of the `count` matrices once.
  size_t matrix_bytes() const { return static_cast<size_t>(rows) * row_bytes(dtype, cols); }
  /// Bytes of one of the matrices in the file.
  size_t file_matrix_bytes() const {
    return static_cast<size_t>(rows) * row_bytes(file_dtype.value_or(dtype), cols);
  }
};

/// Activations in backend memory: [rows, cols] of the backend's activation type, rows `stride` elements
/// apart.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  // For an op of a program (kernels/program/program.h), which sets `data` and the number of rows:
  int32_t value = -1;     ///< the value that this is a part of; -1: memory of its own
  int64_t first_col = 0;  ///< the value's column that is the first one here
  int64_t pieces = 1;     ///< rows here for each row of the value

  float* f32() const { return static_cast<float*>(data); }
  float* f32_row(int64_t row) const { return f32() + row * stride; }
};

/// Numbers that one op leaves for another, row after row in backend memory; no op needs more than their address.
template <class T>
struct Numbers {
  T* data = nullptr;
  int32_t value = -1;  ///< as in Tensor

  Numbers(T* numbers = nullptr) : data(numbers) {}
  template <class U>
  requires std::convertible_to<U*, T*> Numbers(const Numbers<U>& other)
      : data(other.data), value(other.value) {}
  operator T*() const { return data; }
};

/// Owns a piece of backend memory. Move-only in effect: plain pointers serve as views.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, size_t bytes, void (*release)(void*)) : data_(data, release), bytes_(bytes) {}
  void* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<void, void (*)(void*)> data_{nullptr, [](void*) {}};
  size_t bytes_ = 0;
};

}  // namespace minfer
