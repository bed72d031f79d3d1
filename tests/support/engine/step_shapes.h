#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/work.h"

namespace minfer::test {

/// A step in which `sequences` sequences decode, each behind `context` tokens, beside `prompt` prompt tokens behind the first `first`.
inline BatchShape step_shape(int32_t sequences, int32_t context, int32_t prompt, int32_t first = 0) {
  BatchShape shape;
  shape.decode_sequences = shape.decode_tokens = shape.decode_logit_rows = sequences;
  shape.decode_context = shape.decode_attended = int64_t{sequences} * context;
  shape.prefill_sequences = prompt > 0;
  shape.prefill_tokens = prompt;
  shape.prefill_logit_rows = prompt > 0;
  shape.prefill_context = prompt > 0 ? int64_t{first} + prompt : 0;
  shape.prefill_attended = int64_t{prompt} * first + int64_t{prompt} * (int64_t{prompt} + 1) / 2;
  return shape;
}

/// The time of a step on a device that is bound by arithmetic, as CPUs are from the first token on.
inline double arithmetic_us(const BatchShape& shape) {
  return 500.0 + 100.0 * shape.tokens() + 20.0 * shape.logit_rows() +
         0.02 * static_cast<double>(shape.decode_context + shape.prefill_attended);
}

/// The time on a device that reads the weights in the time in which it computes 300 tokens with them.
inline double roofline_us(const BatchShape& shape) {
  return 200.0 + std::max(3000.0, 10.0 * shape.tokens()) + 0.002 * static_cast<double>(shape.decode_context) +
         1e-5 * static_cast<double>(shape.prefill_attended);
}

}  // namespace minfer::test
