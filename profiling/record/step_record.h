#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/stamps.h"
#include "kernels/work.h"

namespace minfer {

/// The parts of a step on the host, in the order they run. Together they cover the step's wall time. `draft` is the time to find draft
/// tokens, including the passes of a draft model. `mask` is the time of the grammars
/// of the requests whose tokens `commit` hands on: to follow them, and to find the tokens that may come next.
enum class HostSpan : uint8_t { draft, schedule, build, launch, wait, commit, mask, detokenise, respond };
inline constexpr size_t kHostSpans = 9;
/// True if outputs leave the span out when it took no time, as in most steps.
constexpr bool is_optional(HostSpan span) {
  return span == HostSpan::draft || span == HostSpan::mask;
}
std::string_view name(HostSpan span);

enum class StepPhase : uint8_t { prefill, decode, mixed };
std::string_view name(StepPhase phase);

/// The name of a step's CUDA graph, from its phase and number of sequences: "decode_b32".
std::string graph_name(StepPhase phase, int32_t sequences);
/// The number of sequences in a graph_name(); 0: the text is no such name.
int32_t sequences_of_graph(std::string_view graph_name);

/// KV blocks that moved between memory and disk (minfer serve --kv-cache-dir).
struct DiskCounts {
  int64_t written = 0;     ///< blocks
  int64_t read = 0;        ///< blocks
  int64_t dropped = 0;     ///< blocks that were not written: the queue or the disk was full
  int64_t lost = 0;        ///< blocks that could not be read, damaged or gone: they are computed
  int64_t hit_tokens = 0;  ///< prompt tokens in the blocks read
  int64_t read_ns = 0;     ///< of the disk's thread

  bool operator==(const DiskCounts&) const = default;
  DiskCounts& operator+=(const DiskCounts& more) {
    written += more.written;
    read += more.read;
    dropped += more.dropped;
    lost += more.lost;
    hit_tokens += more.hit_tokens;
    read_ns += more.read_ns;
    return *this;
  }
  DiskCounts operator-(const DiskCounts& before) const {
    return {written - before.written,       read - before.read,
            dropped - before.dropped,       lost - before.lost,
            hit_tokens - before.hit_tokens, read_ns - before.read_ns};
  }
};

/// The engine's facts about a step, without its times.
struct StepBatch {
  BatchShape shape;
  int32_t padded_tokens = 0;
  int32_t graph_batch = 0;  ///< sequences in the replayed CUDA graph; 0: no graph
  int32_t prefix_hit_tokens = 0;
  int32_t preempted = 0;
  int32_t kv_blocks_used = 0;
  int32_t kv_blocks_total = 0;
  int32_t waiting = 0;           ///< requests queued after scheduling
  int32_t constrained_rows = 0;  ///< tokens drawn among those that a grammar allows
  int32_t forced_tokens = 0;     ///< tokens that grammars left no choice of, added after the drawn ones
  int32_t prefill_budget = 0;    ///< prompt tokens allowed beside decoding; 0: no target
  int64_t predicted_ns = 0;      ///< expected wall time; 0: no similar step had been seen
  int32_t drafts = 0;            ///< sequences that brought draft tokens
  int32_t draft_tokens = 0;      ///< draft tokens in them
  int32_t accepted_tokens = 0;   ///< draft tokens that were drawn
  static constexpr size_t kMostDrafts = 16;            ///< of a sequence
  std::array<uint16_t, kMostDrafts> accepted_at = {};  ///< the same, by their place among a sequence's drafts
  DiskCounts disk;                                     ///< since the step before it

  StepPhase phase() const {
    if (shape.prefill_tokens == 0) return StepPhase::decode;
    return shape.decode_tokens == 0 ? StepPhase::prefill : StepPhase::mixed;
  }
};

/// The ids of the requests that a step served, in one buffer. Refilling the buffer allocates nothing once it has grown.
class RequestIds {
 public:
  void push_back(std::string_view id) {
    text_.append(id);
    ends_.push_back(text_.size());
  }
  void clear() {
    text_.clear();
    ends_.clear();
  }
  size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string text_;
  std::vector<size_t> ends_;
};

/// The measurements of one step, as kept in memory for every step. The engine thread fills it without
/// allocating (vectors are reused). Everything that can be computed later is computed later (see summary.h).
struct StepRecord {
  int64_t step = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::array<int64_t, kHostSpans> host_ns{};  ///< by span; `launch` excludes ops on a synchronous backend
  bool on_device = false;  ///< the ops ran in parallel with the host (asynchronous backend)
  bool queued = false;     ///< and it began before the device ended the one in front
  StepStamps stamps;
  StepBatch batch;
  RequestIds requests;           ///< only while a sink takes the records (see recorder.h)
  std::vector<uint32_t> served;  ///< the same requests by EndedRequest::number, always

  int64_t wall_ns() const { return end_ns - start_ns; }
  void clear();  ///< resets it, but keeps the memory of `stamps` and `requests`
};

/// The launches of an op that reserve_stamps() makes room for; most ops have one or two.
inline constexpr size_t kLaunchesOfOp = 3;

/// Reserves room for `num_ops` stamps and writes to it, since the page faults would otherwise come in the middle of a step.
void reserve_stamps(StepRecord& record, size_t num_ops);

/// The memory of a record with `num_ops` stamps.
inline size_t record_bytes(size_t num_ops) {
  return sizeof(StepRecord) + num_ops * (sizeof(StepStamps::Stamp) + kLaunchesOfOp * sizeof(int32_t));
}

}  // namespace minfer
