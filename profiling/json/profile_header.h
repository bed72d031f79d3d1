#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/op.h"
#include "profiling/record/ceilings.h"

namespace minfer {

inline constexpr std::string_view kStepSchema = "minfer.step/1";

/// How much of each step a profile file holds.
enum class ProfileDetail : uint8_t {
  op,     ///< ops summed over layers
  layer,  ///< also each op of each layer
};
std::string_view name(ProfileDetail detail);

/// What does not change from step to step: the first line of a profile file.
struct ProfileHeader {
  std::string version;  ///< of minfer
  std::string model;    ///< name or path as the user gave it
  std::string backend;  ///< "cpu" or "cuda"
  std::string device;   ///< e.g. the processor's name
  int32_t threads = 0;
  Ceilings ceilings;
  std::vector<std::pair<std::string, std::string>>
      options;           ///< name and value of each engine option that was in force
  int64_t clock_ns = 0;  ///< now_ns() and
  int64_t unix_ns = 0;   ///< the wall clock at one instant: maps start_ns to dates
  ProfileDetail detail = ProfileDetail::op;
  std::vector<OpInfo> ops;  ///< by OpId
};

/// The header's ceilings, e.g. "4530.0 GB/s read, 833000.0 GFLOP/s bf16": products are measured in the type
/// that the device is best at.
std::string ceilings_text(const ProfileHeader& header);

/// Sets clock_ns and unix_ns to now.
void stamp_clocks(ProfileHeader& header);

}  // namespace minfer
