#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "profiling/json/profile_header.h"
#include "server/bench/bench_workload.h"

namespace minfer {

/// The time of steps, and the time between steps while there was work, as findings count it.
struct BusyTime {
  int64_t ns = 0;

  void add(int64_t start_ns, int64_t end_ns, const StepBatch& batch) {
    if (last_end_ns > 0 && (batch.shape.decode_sequences > 0 || was_waiting))
      ns += std::max<int64_t>(0, start_ns - last_end_ns);
    ns += end_ns - start_ns;
    last_end_ns = end_ns;
    was_waiting = batch.waiting > 0;
  }

  int64_t last_end_ns = 0;
  bool was_waiting = false;
};

/// The requests that a profile file recorded, as a load that can be run again.
struct RecordedLoad {
  static constexpr size_t kMostRequests = 1'000'000;

  std::string path;
  ProfileHeader header;
  std::vector<EndedRequest> requests;  ///< in order of arrival; at least one
  BusyTime busy;                       ///< of all its steps
  size_t num_refused = 0;              ///< requests that never ran, which are left out
  std::string note;                    ///< see read_profile()

  /// The chance that a draft token was right, by the drafts in each check and the number accepted; absent: none was checked.
  std::optional<double> acceptance() const;
  /// Keeps only the first `count` requests; the time of steps is then not known.
  void keep_first(size_t count);
};

/// Throws FileError if the file cannot be read, has no request that ran, or has more than `most`.
RecordedLoad read_recorded_load(const std::string& path, size_t most = RecordedLoad::kMostRequests);

/// The requests as a load for `engine`, which outlives it. They arrive at their times (by options.replay_speed) from the first
/// arrival on. Where clients sent a request when another was answered, and so kept as many in flight, it arrives as long after
/// that one's end. Prompts are as ReplayPrompts says (by options.seed). Each request generates exactly as many tokens as recorded,
/// greedily and without a grammar. A cancelled request is cancelled after as many tokens, or, if it had none, as long after its
/// arrival, unless its first token ends it before. Throws FileError if a request is longer than the engine's sequences can be.
std::vector<Conversation> replay_workload(const RecordedLoad& load, const WorkloadOptions& options,
                                          const Engine& engine);

}  // namespace minfer
