#pragma once

#include "kernels/cuda/attention/decode/attention_decode.h"

namespace minfer::cuda {

/// A walk over the share of a thread block of attention_decode, in steps of kGroups chunks. A segment is the
/// share's part of one unit. `end`: the share's end in the line of all chunks. Params: DecodeParams or
/// DecodeOptionParams.
template <int kGroups, class Params>
struct SegmentCursor {
  int32_t line;  ///< index of the segment's first chunk among all chunks; `end` behind the last segment
  int32_t sequence;
  int32_t unit;
  int32_t chunk;    ///< the segment's first, in the unit
  int32_t chunks;   ///< of the unit
  int32_t context;  ///< of the sequence
  int32_t step;
  int32_t skipped = 0;  ///< chunks of the sequence in front of its units' chunks

  __device__ int32_t unit_begin() const { return line - chunk; }
  __device__ int32_t segment_end(int32_t end) const { return min(end, unit_begin() + chunks); }
  __device__ int32_t steps(int32_t end) const { return (segment_end(end) - line + kGroups - 1) / kGroups; }
  __device__ int32_t first_key(int32_t of_step) const {
    return (skipped + chunk + of_step * kGroups) * kChunkKeys;
  }
  /// The end of the segment's keys.
  __device__ int32_t keys_end(int32_t end) const {
    return min(context, (skipped + segment_end(end) - unit_begin()) * kChunkKeys);
  }
  /// The first key of the sequence in the window.
  __device__ int32_t first_seen(const Params& p) const {
    if constexpr (kHasOptions<Params>) return p.options.first_seen(context - 1);
    return 0;
  }
  __device__ void skip_chunks(const Params& p) {
    if constexpr (kHasOptions<Params>) skipped = DecodeChunks::of(context, p.options.window).skipped;
  }
  /// True if the step holds the sequence's newest key. The engine's running step adds that key.
  __device__ bool has_newest_key(int32_t end) const {
    return line < end && chunk + (step + 1) * kGroups >= chunks;
  }

  /// Goes to the next segment; returns whether there is one.
  __device__ bool next_segment(const Params& p, int32_t end) {
    line = segment_end(end);
    chunk = 0;
    if (line == end) return false;
    if (++unit == p.units) {
      unit = 0;
      context = __ldcg(p.context_len + ++sequence);
      skip_chunks(p);
      chunks = max(1, (context + kChunkKeys - 1) / kChunkKeys - skipped);
    }
    return true;
  }

  /// Goes forward by `count` steps, across segments if necessary.
  __device__ void advance(const Params& p, int32_t end, int32_t count) {
    step += count;
    int32_t in_segment = steps(end);
    while (step >= in_segment) {
      if (line == end || !next_segment(p, end)) return;
      step -= in_segment;
      in_segment = steps(end);
    }
  }
};

}  // namespace minfer::cuda
