#include "tests/support/attention_run.h"

#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/key_choice.h"
#include "tests/support/random_data.h"

namespace minfer::test {
namespace {

/// Data that depends on the sequence, not on its place.
struct SequenceData {
  std::vector<float> q, k, v;

  SequenceData(const AttentionShape& shape, int32_t context, uint64_t seed)
      : q(normal_values(context * shape.q_cols(), 3 * seed)),
        k(normal_values(context * shape.k_cols(), 3 * seed + 1)),
        v(normal_values(context * shape.v_cols(), 3 * seed + 2)) {}
};

/// The values that are part of rows of keys [context, k_cols] of one KV head.
std::vector<float> values_in(const AttentionShape& shape, std::span<const float> keys) {
  std::vector<float> values;
  for (size_t row = 0; row < keys.size(); row += static_cast<size_t>(shape.k_cols())) {
    const auto value = keys.subspan(row, static_cast<size_t>(shape.v_cols()));
    values.insert(values.end(), value.begin(), value.end());
  }
  return values;
}

float scale_of(const AttentionShape& shape) {
  return shape.scale != 0.0f ? shape.scale : 1.0f / std::sqrt(static_cast<float>(shape.head_size));
}

}  // namespace

std::string AttentionShape::text() const {
  return fmt::format("heads {}/{} x {}/{}, block {}, {}, {} {}, cap {}, {} sinks, scale {}", heads, kv_heads,
                     head_size, value_size(), block_size, name(dtype),
                     options.chunked ? "chunks of" : "window", options.window, options.logit_cap,
                     options.sinks.size(), scale_of(*this));
}

std::vector<float> random_sinks(int32_t heads) {
  return normal_values(heads, 77, 3.0f);
}

AttentionResult run_attention(Backend& backend, const AttentionShape& shape,
                              const std::vector<SequenceShape>& sequences, const std::vector<uint64_t>& names,
                              bool with_reference) {
  PagedBatch batch(backend, sequences, shape.block_size, shape.block_seed);
  PagedCache k(backend, batch, shape.dtype, shape.kv_heads, shape.head_size);
  PagedCache v(backend, batch, shape.dtype, shape.kv_heads, static_cast<int32_t>(shape.value_size()));
  AttentionResult result;
  std::vector<float> qkv;
  std::vector<int32_t> chosen;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const auto [context, queries] = sequences[s];
    const SequenceData data(shape, context, names[s]);
    const std::vector<float> stored_k = k.store(batch, s, data.k);
    const std::vector<float> stored_v = shape.v_in_k ? values_in(shape, stored_k) : v.store(batch, s, data.v);
    const std::vector<float> q(data.q.end() - queries * shape.q_cols(), data.q.end());
    for (int32_t t = 0; t < queries; ++t) {
      qkv.insert(qkv.end(), q.begin() + t * shape.q_cols(), q.begin() + (t + 1) * shape.q_cols());
      qkv.insert(qkv.end(), static_cast<size_t>(shape.qkv_cols() - shape.q_cols()), NAN);  // must not be read
    }
    reference::AttentionOptions options = shape.options;
    for (int32_t t = 0; shape.most_chosen > 0 && t < queries; ++t) {
      std::vector<int32_t> of_query = random_choice(context - queries + t, shape.most_chosen, 100 * names[s]);
      options.chosen.push_back(of_query);
      of_query.resize(static_cast<size_t>(shape.most_chosen), -1);  // must not be read
      chosen.insert(chosen.end(), of_query.begin(), of_query.end());
    }
    if (!with_reference) continue;
    result.reference.push_back(reference::attention(reference::to_matrix(q, queries, shape.q_cols()),
                                                    reference::to_matrix(stored_k, context, shape.k_cols()),
                                                    reference::to_matrix(stored_v, context, shape.v_cols()),
                                                    shape.head_size, scale_of(shape), options)
                                   .data);
  }
  k.upload();
  v.upload();
  const AttentionWindow window(static_cast<int32_t>(shape.options.window), shape.options.chunked,
                               static_cast<int16_t>(shape.options.hidden));
  batch.hide_blocks_outside(window);
  const GuardedTensor input(backend, batch.batch().num_tokens, shape.qkv_cols(), qkv);
  const GuardedTensor out(backend, batch.batch().num_tokens, shape.out_cols());
  const DeviceArray<float> sinks(backend,
                                 shape.options.sinks.empty() ? std::vector{NAN} : shape.options.sinks);
  AttentionArgs args;
  args.qkv = input.tensor();
  args.heads = shape.heads;
  args.scale = scale_of(shape);
  args.kv = {k.data(),         shape.v_in_k ? k.data() : v.data(),
             shape.dtype,      batch.num_blocks(),
             shape.block_size, shape.kv_heads,
             shape.head_size,  shape.v_head_size,
             shape.v_in_k};
  args.num_sequences = static_cast<int32_t>(sequences.size());
  args.out = out.tensor();
  args.window = window;
  args.logit_cap = static_cast<float>(shape.options.logit_cap);
  if (!shape.options.sinks.empty()) {
    args.sinks = {.data = sinks.data(), .dtype = DType::f32, .rows = 1, .cols = shape.heads};
  }
  const DeviceArray<int32_t> chosen_keys(backend, chosen);
  if (shape.most_chosen > 0) args.chosen = chosen_keys.data();
  args.most_chosen = shape.most_chosen;
  backend.attention(0, batch.batch(), args);

  EXPECT_TRUE(out.intact()) << "wrote around its output: " << shape.text();
  EXPECT_TRUE(k.unchanged() && v.unchanged()) << "wrote to the cache: " << shape.text();
  const std::vector<float> values = out.values();
  auto next = values.begin();
  for (const SequenceShape& s : sequences) {
    const auto end = next + s.queries * shape.out_cols();
    result.out.emplace_back(next, end);
    next = end;
  }
  return result;
}

}  // namespace minfer::test
