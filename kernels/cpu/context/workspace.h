#pragma once

#include <cstddef>

namespace minfer::cpu {

/// Scratch memory of the CPU ops, owned by the backend and lent to one op at a time. It grows to the size
/// that the largest op asked for and never shrinks, so that steps of a known shape do not allocate. Not
/// thread-safe: an op takes its memory before its parallel region.
class Workspace {
 public:
  static constexpr size_t kAlignment = 64;

  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  /// At least `bytes` of uninitialised memory, aligned to kAlignment; valid until the next call. Throws Error
  /// if there is not enough.
  void* take(size_t bytes);

 private:
  void* data_ = nullptr;
  size_t capacity_bytes_ = 0;
};

}  // namespace minfer::cpu
