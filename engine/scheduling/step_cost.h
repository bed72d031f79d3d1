#pragma once

#include <cstdint>

#include "engine/scheduling/online_fit.h"
#include "profiling/record/recorder.h"

namespace minfer {

/// What a step takes, by what it computes: learnt from the records of the steps that were, for those to come. Steps that only decode and
/// steps with tokens of prompts are two fits: the first may replay a graph, and however many of them say nothing of what a prompt's token
/// takes. But what a step would have taken without its prompts, by the first fit, is a sample of the second: else it could not know what
/// of a step is the prompt's, where all pieces are of one size. The first step of each kind, which finds everything cold, is passed over.
///
/// Time grows with the tokens, and from some hundred on faster: below, reading the weights takes longer than computing with them. So what
/// a token costs has one slope up to 128 tokens of a step, and more from there and from 512 on: a convex line that never falls, from which
/// the number of tokens for a time can be read. Beside it count rows of logits, cached tokens that decoding reads, and (query, cached)
/// pairs of prompts.
///
/// Owned by the engine and used on its thread. Learning from a step takes less than a microsecond and allocates nothing.
class StepCost final : public StepSink {
 public:
  /// Learns from the record's wall time.
  void consume(const StepRecord& record) noexcept override { observe(record.batch.shape, record.wall_ns()); }
  bool wants_requests() const noexcept override { return false; }
  bool wants_ended_requests() const noexcept override { return false; }

  void observe(const BatchShape& shape, int64_t wall_ns);
  /// Wall time that a step of this shape should take. 0: no step alike has been seen.
  int64_t predict_ns(const BatchShape& shape) const;
  /// Most tokens of a step with prompts that was seen: far beyond, a prediction is a guess. 0: there was none.
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
