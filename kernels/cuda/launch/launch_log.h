#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/launches.h"
#include "kernels/occupancy.h"
#include "kernels/op.h"

namespace minfer::cuda {

/// What the kernels of the step under way were launched with, and the table of all launches that there ever were. One thread, but
/// for table(). Adds to the table when a launch is of a new kind; allocates nothing otherwise.
class LaunchLog {
 public:
  /// The launches of one op: `num_launches` of launches(), from where those of the op in front end.
  struct OpRun {
    OpId op = -1;
    int32_t num_launches = 0;
    int64_t launched_ns = 0;     ///< when the host had launched the first
    int32_t begin_stamp = -1;    ///< its place among the step's stamps; -1: none
    int32_t end_stamp = -1;      ///< -1: none
    int32_t arrival_stamp = -1;  ///< when the data of all ranks had come; -1: none
    int32_t routed_layer =
        -1;  ///< a product of experts: which of the step's counts of chosen experts is its own; -1: none
  };

  /// `has_early_starts`: kernels begin before those in front of them have ended (PDL, from compute capability 9.0 on).
  LaunchLog(const SmLimits& limits, bool has_early_starts)
      : limits_(limits), has_early_starts_(has_early_starts) {}

  const LaunchTable& table() const { return table_; }
  void clear();
  /// What is launched next belongs to a run of `op`.
  OpRun& begin_op(OpId op) { return runs_.emplace_back(OpRun{.op = op}); }
  /// A launch that has been made. `path`: what launched it. `reads_ahead_bytes`: see KernelLaunch.
  void add(const char* path, const void* kernel, dim3 grid, dim3 block, size_t dynamic_shared_bytes,
           int64_t reads_ahead_bytes = 0);
  /// Launches of a library, whose entries the caller keeps; -1 stands for one that is not known.
  void add(std::span<const int32_t> launches);
  /// A new entry of the table; -1 if it is full.
  int32_t enter(KernelLaunch launch);

  std::vector<OpRun>& runs() { return runs_; }
  const std::vector<int32_t>& launches() const { return launches_; }

 private:
  struct Key {
    const void* kernel;
    dim3 grid, block;
    size_t dynamic_shared_bytes;
    bool operator==(const Key& other) const;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  void note_launch();

  SmLimits limits_;
  bool has_early_starts_;
  LaunchTable table_;
  std::unordered_map<Key, int32_t, Hash> indices_;
  std::vector<OpRun> runs_;
  std::vector<int32_t> launches_;
};

}  // namespace minfer::cuda
