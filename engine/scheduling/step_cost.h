#pragma once

#include <cstdint>

#include "engine/scheduling/online_fit.h"
#include "profiling/record/recorder.h"

namespace minfer {

/// The time of a step, by what it computes: learnt from the records of past steps, for those to come. Decode-only steps and
/// steps with prompt tokens are two fits: decode steps may replay a graph, and they say nothing of a prompt token's cost.
/// But the first fit's prediction for a step without its prompts is a sample of the second; else, where all pieces have one
/// size, it could not tell the prompt's part of a step. The first step of each kind finds everything cold and is ignored.
///
/// Time grows with the tokens, and faster from some hundred tokens on: below, reading the weights takes longer than
/// computing with them. So the cost of a token has one slope up to 128 tokens of a step, a steeper one from there and
/// a still steeper one from 512 on: a convex line that never falls, so that the number of tokens for a time can be
/// read from it. Rows of logits, cached tokens that decoding reads, and (query, cached) pairs of prompts count too.
///
/// Owned by the engine and used on its thread. Learning from a step takes less than a microsecond and allocates nothing.
class StepCost final : public StepSink {
 public:
  /// Learns from the record's wall time.
  void consume(const StepRecord& record) noexcept override { observe(record.batch.shape, record.wall_ns()); }
  bool wants_requests() const noexcept override { return false; }
  bool wants_ended_requests() const noexcept override { return false; }

  void observe(const BatchShape& shape, int64_t wall_ns);
  /// The wall time that a step of this shape should take. 0: no similar step has been seen.
  int64_t predict_ns(const BatchShape& shape) const;
  /// The most tokens of any step with prompts so far: far beyond them, a prediction is a guess. 0: there was none.
  int32_t most_tokens_seen() const { return most_tokens_; }

 private:
  using DecodeFit = OnlineFit<3>;
  using PrefillFit = OnlineFit<8>;

  static DecodeFit::Features decode_features(const BatchShape& shape);
  static PrefillFit::Features prefill_features(const BatchShape& shape);

  DecodeFit decode_;
  PrefillFit prefill_;
  bool has_decoded_ = false;
  int32_t most_tokens_ = 0;
};

}  // namespace minfer
