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

/// The launches of the current step's kernels, and the table of all launches so far. One thread, except for
/// table(). It adds to the table when a launch is of a new kind, and allocates nothing otherwise.
class LaunchLog {
 public:
  /// The launches of one op: `num_launches` entries of launches(), from the end of those of the op in front.
  struct OpRun {
    OpId op = -1;
    int32_t num_launches = 0;
    int64_t launched_ns = 0;     ///< the time at which the host had launched the first
    int32_t begin_stamp = -1;    ///< its index among the step's stamps; -1: none
    int32_t end_stamp = -1;      ///< -1: none
    int32_t arrival_stamp = -1;  ///< for the time at which the data of all ranks had come; -1: none
    int32_t routed_layer =
        -1;  ///< for a product of experts: the index of its count among the step's counts of chosen experts; -1: none
  };

  /// `has_early_starts`: kernels begin before those in front of them have ended (PDL, from compute capability 9.0 on).
  LaunchLog(const SmLimits& limits, bool has_early_starts)
      : limits_(limits), has_early_starts_(has_early_starts) {}

  const LaunchTable& table() const { return table_; }
  void clear();
  /// The next launches belong to a run of `op`.
  OpRun& begin_op(OpId op) { return runs_.emplace_back(OpRun{.op = op}); }
  /// Notes a launch. `path` and `reads_ahead_bytes`: see KernelLaunch.
  void add(const char* path, const void* kernel, dim3 grid, dim3 block, size_t dynamic_shared_bytes,
           int64_t reads_ahead_bytes = 0);
  /// Notes launches of a library, whose entries the caller keeps; -1: a launch that is not known.
  void add(std::span<const int32_t> launches);
  /// Adds an entry to the table and returns its index; -1 if the table is full.
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
