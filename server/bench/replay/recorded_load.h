#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "profiling/json/profile_header.h"
#include "server/bench/bench_workload.h"

namespace minfer {

/// The requests that a profile file recorded, as a load that can be run again.
struct RecordedLoad {
  static constexpr size_t kMostRequests = 1'000'000;

  std::string path;
  ProfileHeader header;
  std::vector<EndedRequest> requests;  ///< in order of arrival; at least one
  size_t num_refused = 0;              ///< requests that never ran, which are left out
  std::string note;                    ///< see read_profile()
};

/// Throws FileError for a file that cannot be read, or has no request that ran, or more than `most`.
RecordedLoad read_recorded_load(const std::string& path, size_t most = RecordedLoad::kMostRequests);

/// The requests as a load for `engine`, which outlives it: from the first arrival on at their times (by options.replay_speed), with
/// prompts as ReplayPrompts says (by options.seed), each generating exactly as many tokens, greedily and without a grammar. One that was
/// cancelled is cancelled behind as many tokens, or, if it had none, as long after its arrival, if its first token does not end it
/// before. Throws FileError for a request that is longer than the engine's sequences can be.
std::vector<Conversation> replay_workload(const RecordedLoad& load, const WorkloadOptions& options,
                                          const Engine& engine);

}  // namespace minfer
