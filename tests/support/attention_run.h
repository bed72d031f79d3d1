#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/reference/ops.h"
#include "tests/support/paged_batch.h"

namespace minfer::test {

struct AttentionShape {
  int32_t heads = 4;
  int32_t kv_heads = 2;
  int32_t head_size = 64;
  int32_t block_size = 16;
  DType dtype = DType::f32;  ///< type of the cache
  uint64_t block_seed = 1;
  int32_t v_head_size = 0;  ///< 0: as head_size
  reference::AttentionOptions options = {};
  float scale = 0.0f;       ///< 0: 1 / sqrt(head_size)
  bool v_in_k = false;      ///< KvLayer::v_in_k
  int32_t most_chosen = 0;  ///< AttentionArgs::most_chosen; 0: no keys are chosen

  int64_t value_size() const { return v_head_size > 0 ? v_head_size : head_size; }
  int64_t q_cols() const { return int64_t{heads} * head_size; }
  int64_t k_cols() const { return int64_t{kv_heads} * head_size; }
  int64_t v_cols() const { return kv_heads * value_size(); }
  int64_t qkv_cols() const { return q_cols() + (v_in_k ? 0 : k_cols() + v_cols()); }
  int64_t out_cols() const { return heads * value_size(); }
  std::string text() const;
};

/// Makes sinks for a shape's heads that are close to the largest of the other scores.
std::vector<float> random_sinks(int32_t heads);

struct AttentionResult {
  std::vector<std::vector<float>> out;  ///< one for each sequence, [queries, out_cols]
  std::vector<std::vector<double>> reference;
};

/// Runs one step of attention over sequences whose data has seeds `names`. The values of a sequence's tokens do not depend on the step
/// or batch. Also checks that nothing else is written, and hides the cache blocks in front of a window.
AttentionResult run_attention(Backend& backend, const AttentionShape& shape,
                              const std::vector<SequenceShape>& sequences, const std::vector<uint64_t>& names,
                              bool with_reference = false);

}  // namespace minfer::test
