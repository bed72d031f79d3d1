#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "profiling/record/profile_header.h"
#include "profiling/record/recorder.h"
#include "profiling/text/table.h"
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

/// Prompts of random tokens, as long as the recorded ones. They begin alike where the recorded ones did: up to the longest hashed
/// prefix in common, and on to the last token that the recorded prompt had from the prefix cache. Each begins like the longest of
/// the earlier prompts that it agrees with most. A prefix in common with an earlier answer is not known, and not replayed.
class ReplayPrompts {
 public:
  /// Makes the prompts of `requests`, which are in order of arrival. `tokenizer` outlives this.
  ReplayPrompts(std::span<const EndedRequest> requests, const Tokenizer& tokenizer, uint64_t seed);

  /// The prompt of a request, the same at each call. No prompt is kept.
  std::vector<TokenId> draw(size_t request) const;

 private:
  static constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;  ///< mixes hashes and seeds
  struct Prompt {
    int32_t length = 0;
    int32_t num_shared = 0;  ///< tokens from its donor; the others are its own
    size_t donor = 0;        ///< earlier prompt, if any tokens are shared; the last of these are its own
  };
  void add(const EndedRequest& request);

  const Tokenizer& tokenizer_;
  uint64_t seed_;
  std::vector<Prompt> prompts_;
  std::unordered_map<uint64_t, size_t> longest_;  ///< of the prompts so far that begin with a prefix
};

/// The requests as a load for `engine`, which outlives it. They arrive at their times (by options.replay_speed) from the first
/// arrival on. Where clients sent a request when another was answered, and so kept as many in flight, it arrives as long after
/// that one's end. Prompts are as ReplayPrompts says (by options.seed). Each request generates exactly as many tokens as recorded,
/// greedily and without a grammar. A cancelled request is cancelled after as many tokens, or, if it had none, as long after its
/// arrival, unless its first token ends it before. Throws FileError if a request is longer than the engine's sequences can be.
std::vector<Conversation> replay_workload(const RecordedLoad& load, const WorkloadOptions& options,
                                          const Engine& engine);

/// Figures of requests from their records. The formulas are the same for a recorded load and, as a sink of the recorder, for its replay.
class RequestFigures final : public StepSink {
 public:
  explicit RequestFigures(const BusyTime& busy = {}) : busy_(busy) {}
  void add(const EndedRequest& request);
  void consume(const StepRecord& step) noexcept override {
    busy_.add(step.start_ns, step.end_ns, step.batch);
  }
  void consume_request(const EndedRequest& request) noexcept override { add(request); }
  bool wants_requests() const noexcept override { return false; }
  bool wants_ended_requests() const noexcept override { return true; }

  /// Counts, duration (s, from the first arrival to the last end), busy_s (with work: steps and the gaps between
  /// them), output_throughput (tokens a second), mean_e2e_ms (from the arrival to the end), TTFT (ms, from the
  /// arrival to the first token) and ITL (ms, mean time between two tokens of a request that was not cancelled).
  nlohmann::ordered_json json() const;

 private:
  int64_t requests_ = 0, cancelled_ = 0, with_grammar_ = 0, with_drafts_ = 0, draft_tokens_ = 0,
          accepted_tokens_ = 0;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, output_tokens_ = 0;
  int64_t begin_ns_ = std::numeric_limits<int64_t>::max(), end_ns_ = 0;
  std::vector<double> e2e_ms_, ttft_ms_, itl_ms_;
  BusyTime busy_;
};

/// A replay against its record: `recorded`, `replayed` and `ratio` (replayed / recorded; null if recorded is 0) with the names of
/// RequestFigures::json(), `differences` of the current engine (`now`) from the recorded one, `notes` of what was not replayed.
nlohmann::ordered_json replay_json(const RecordedLoad& load, double speed, const RequestFigures& replayed,
                                   const ProfileHeader& now);

/// The same for people, without the notes.
Table replay_table(const nlohmann::ordered_json& replay);

}  // namespace minfer
