#include "engine/scheduling/step_cost.h"

#include <algorithm>
#include <utility>

namespace minfer {
namespace {

constexpr double kFirstBend = 128.0, kSecondBend = 512.0;  // tokens of a step
constexpr double kMostNs = 1e15;                           // of a prediction: 11 days

}  // namespace

// Undetermined time belongs to the step, whatever its tokens: weights are read for one token as for many.
StepCost::DecodeFit::Features StepCost::decode_features(const BatchShape& shape) {
  return {1.0, shape.decode_tokens / 16.0, static_cast<double>(shape.decode_context) / 4096.0};
}

// Here undetermined time belongs to the tokens: a short piece's time then predicts a long time for a long piece, and nobody tries it
// beside decoding. Pairs come last: a short piece has so few that time attributed to them would predict an absurd time for a long piece.
StepCost::PrefillFit::Features StepCost::prefill_features(const BatchShape& shape) {
  const double tokens = shape.tokens();
  return {tokens / kFirstBend,
          std::max(0.0, tokens - kFirstBend) / kFirstBend,
          std::max(0.0, tokens - kSecondBend) / kSecondBend,
          shape.logit_rows() / 16.0,
          shape.prefill_tokens > 0 ? 1.0 : 0.0,
          1.0,
          static_cast<double>(shape.decode_context) / 4096.0,
          static_cast<double>(shape.prefill_attended) / 65536.0};
}

void StepCost::observe(const BatchShape& shape, int64_t wall_ns) {
  const auto ns = static_cast<double>(wall_ns);
  if (shape.prefill_tokens == 0) {
    if (std::exchange(has_decoded_, true)) decode_.add(decode_features(shape), ns);
    return;
  }
  if (std::exchange(most_tokens_, std::max(most_tokens_, shape.tokens())) == 0) return;
  if (shape.decode_sequences > 0) {
    BatchShape decoding;
    decoding.decode_tokens = shape.decode_tokens;
    decoding.decode_logit_rows = shape.decode_logit_rows;
    decoding.decode_context = shape.decode_context;
    prefill_.add(prefill_features(decoding), decode_.predict(decode_features(decoding)));
  }
  prefill_.add(prefill_features(shape), ns);
}

int64_t StepCost::predict_ns(const BatchShape& shape) const {
  const double ns = shape.prefill_tokens == 0 ? decode_.predict(decode_features(shape))
                                              : prefill_.predict(prefill_features(shape));
  return static_cast<int64_t>(std::min(ns, kMostNs));
}

}  // namespace minfer
