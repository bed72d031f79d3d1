#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/launches.h"
#include "kernels/memory_use.h"
#include "kernels/op.h"
#include "profiling/record/ceilings.h"

namespace minfer {

/// The detail of each step in a profile file.
enum class ProfileDetail : uint8_t {
  op,     ///< ops summed over layers
  layer,  ///< also each op of each layer
};
std::string_view name(ProfileDetail detail);

/// The tiers that were requested, in addition to the records of steps (tier 0), which are always there.
struct AskedTiers {
  bool kernels = false;   ///< tier 1: a range of steps, kernel by kernel
  bool counters = false;  ///< tier 2: windows of hardware counters

  std::vector<int32_t> numbers() const;  ///< e.g. {0, 2}
};

/// The facts that do not change from step to step: the first line of a profile file.
struct ProfileHeader {
  std::string version;  ///< of minfer
  std::string model;    ///< name or path as the user gave it
  std::string backend;  ///< "cpu" or "cuda"
  std::string device;   ///< e.g. the processor's name
  int32_t threads = 0;
  int32_t cores = 0;                    ///< of the machine, that the program may use; 0: not known
  DType activation_dtype = DType::f32;  ///< the ceilings are for products of this type
  Ceilings ceilings;
  int64_t cache_bytes = 0;  ///< size of the cache in front of the device's memory; 0: not known
  MemoryUse memory;         ///< when the header was made
  std::vector<std::pair<std::string, std::string>>
      options;           ///< name and value of each engine option in force
  int64_t clock_ns = 0;  ///< now_ns() and
  int64_t unix_ns = 0;   ///< the wall clock at one instant: maps start_ns to dates
  ProfileDetail detail = ProfileDetail::op;
  AskedTiers asked = {};
  std::vector<OpInfo> ops;  ///< by OpId
  /// The running backend's table, which must outlive the header; null: there are no launches. A file has a line for each
  /// launch in front of the first step that names it.
  const LaunchTable* launches = nullptr;
};

/// The header's ceilings, e.g. "4530.0 GB/s read, 833000.0 GFLOP/s bf16". Products are measured in the type
/// of the activations, and also on FP8 tensor cores if some ops use them.
std::string ceilings_text(const ProfileHeader& header);
/// The types that an op's layers multiply in: "f32", "bf16", "fp8".
std::vector<std::string_view> unit_names(const ProfileHeader& header, std::string_view op);
/// A sentence on the type that each op multiplies in, and the other types that the device has.
std::string units_text(const ProfileHeader& header);
/// How and when the ceilings were measured, as text to follow ceilings_text(); empty: not known.
std::string measured_text(const Ceilings& ceilings);

/// Sets clock_ns and unix_ns to now.
void stamp_clocks(ProfileHeader& header);

}  // namespace minfer
