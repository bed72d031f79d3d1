#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/launches.h"

namespace minfer::test {

/// A kernel as CUPTI saw it run.
struct KernelRecord {
  std::string name;  ///< mangled
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  KernelLaunch launch = {};  ///< sizes and resources
};

/// CUPTI's activity records of kernels, those of replayed graphs included. CUPTI is loaded when this is made:
/// before the CUDA work whose kernels it is to see. One at a time.
class KernelRecorder {
 public:
  /// Null if this machine has no CUPTI, or another program (a profiler) holds it.
  static std::unique_ptr<KernelRecorder> open();
  ~KernelRecorder();

  void start();
  /// The kernels since start(), which have all ended, in the order in which they began.
  std::vector<KernelRecord> stop();

 private:
  struct Library;
  explicit KernelRecorder(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace minfer::test
