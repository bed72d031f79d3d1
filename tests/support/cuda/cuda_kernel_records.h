#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/launches.h"

namespace minfer::test {

/// A run of a kernel as CUPTI recorded it.
struct KernelRecord {
  std::string name;  ///< mangled
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  KernelLaunch launch = {};  ///< sizes and resources
};

/// CUPTI's activity records of kernels, also of replayed graphs. The constructor loads CUPTI: make it before
/// the CUDA work whose kernels it is to record. One at a time.
class KernelRecorder {
 public:
  /// Null if this machine has no CUPTI, or if another program (a profiler) holds it.
  static std::unique_ptr<KernelRecorder> open();
  ~KernelRecorder();

  void start();
  /// The kernels since start(), in the order in which they began; all have ended.
  std::vector<KernelRecord> stop();

 private:
  struct Library;
  explicit KernelRecorder(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace minfer::test
