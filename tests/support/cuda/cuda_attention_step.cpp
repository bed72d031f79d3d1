#include "tests/support/cuda/cuda_attention_step.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/key_choice.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"

namespace minfer::test {
namespace {

/// The largest NMSE allowed for a sequence with each combination of types. bf16: the output alone gives 1.3e-6.
double largest_error(const CudaAttentionShape& shape) {
  if (shape.out == DType::fp8) return 1e-3;
  if (shape.qkv != DType::f32) return 1e-5;
  return shape.options.logit_cap > 0.0 ? 1e-11 : 1e-12;
}

/// The place of the head, and its token, with the largest error.
std::string worst_head(std::span<const float> found, std::span<const double> expected, int64_t heads,
                       int64_t size) {
  std::string place = "none";
  double worst = -1.0;
  for (int64_t at = 0; at < std::ssize(found); at += size) {
    const double error = nmse(found.subspan(static_cast<size_t>(at), static_cast<size_t>(size)),
                              expected.subspan(static_cast<size_t>(at), static_cast<size_t>(size)));
    if (error <= worst) continue;
    worst = error;
    place = fmt::format("query {}, head {}: NMSE {:.2e}, first element {} of {}", at / size / heads,
                        at / size % heads, error, found[static_cast<size_t>(at)],
                        expected[static_cast<size_t>(at)]);
    if (std::isnan(error)) break;
  }
  return place;
}

std::vector<float> random_values(size_t sequence, int part, int64_t count, DType dtype) {
  return rounded(normal_values(count, 3 * sequence + static_cast<size_t>(part)), dtype);
}

AttentionWindow window_of(const CudaAttentionShape& shape) {
  return {static_cast<int32_t>(shape.options.window), shape.options.chunked,
          static_cast<int16_t>(shape.options.hidden)};
}

std::vector<AttentionWindow> with_window(std::vector<AttentionWindow> windows,
                                         const CudaAttentionShape& shape) {
  windows.push_back(window_of(shape));
  return windows;
}

/// The window outside of which keys may be gone, because no layer's window sees them: the largest window.
AttentionWindow hidden_by(std::span<const AttentionWindow> windows) {
  if (std::ranges::count(windows, AttentionWindow{}) > 0) return {};
  return std::ranges::max(windows, {}, &AttentionWindow::keys);
}

}  // namespace

std::string CudaAttentionShape::text() const {
  return fmt::format("{}/{} heads of {}/{}, block {}, {}, cache {}, out {}, {} {}, cap {}, {} sinks", heads,
                     kv_heads, head_size, value_size(), block_size, name(qkv), name(kv), name(out),
                     options.chunked ? "chunks of" : "window", options.window, options.logit_cap,
                     options.sinks.size());
}

CudaAttentionStep::CudaAttentionStep(const CudaAttentionShape& shape, std::vector<CudaSequence> sequences,
                                     int32_t num_decode, int32_t max_context,
                                     std::vector<AttentionWindow> windows, std::vector<AttentionKind> others)
    : shape_(shape),
      batch_(std::move(sequences), num_decode, shape.block_size, 7, max_context,
             hidden_by(with_window(windows, shape))),
      k_(batch_, shape.kv, shape.kv_heads, shape.head_size),
      v_(batch_, shape.kv, shape.kv_heads, static_cast<int32_t>(shape.value_size())),
      ops_(std::make_shared<cuda::AttentionOps>(run_.num_sms(),
                                                limits(with_window(windows, shape), std::move(others)))) {
  if (!shape.options.sinks.empty()) sinks_.emplace(shape.options.sinks);
  fill();
}

void CudaAttentionStep::assign(std::vector<CudaSequence> sequences) {
  batch_.assign(std::move(sequences));
  k_.clear();
  v_.clear();
  fill();
}

void CudaAttentionStep::launch() {
  const ForwardBatch& batch = batch_.batch();
  cuda::Launch plan = run_.launch();
  ops_->plan(plan, batch);
  attend(0, batch.num_decode_sequences);
  attend(batch.num_decode_sequences, batch.num_sequences - batch.num_decode_sequences);
}

void CudaAttentionStep::attend(int32_t first_sequence, int32_t num_sequences) {
  if (num_sequences == 0) return;
  AttentionArgs args{
      .qkv = qkv_->tensor(),
      .heads = shape_.heads,
      .scale = scale(),
      .kv = {k_.data(), shape_.v_in_k ? k_.data() : v_.data(), shape_.kv, batch_.num_blocks(),
             shape_.block_size, shape_.kv_heads, shape_.head_size, shape_.v_head_size, shape_.v_in_k},
      .first_sequence = first_sequence,
      .num_sequences = num_sequences,
      .out = fp8_out_ ? fp8_out_->tensor() : out_->tensor(),
      .window = window_of(shape_),
      .logit_cap = static_cast<float>(shape_.options.logit_cap)};
  if (!shape_.options.sinks.empty()) args.sinks = {.data = sinks_->data(), .rows = 1, .cols = shape_.heads};
  if (chosen_) args.chosen = chosen_->data();
  args.most_chosen = shape_.most_chosen;
  cuda::Launch launch = run_.launch();
  ops_->attention(launch, batch_.batch(), args);
}

void CudaAttentionStep::check() const {
  run_.wait();
  EXPECT_TRUE(out_->intact()) << "wrote around its output: " << shape_.text();
  EXPECT_TRUE(k_.unchanged() && v_.unchanged()) << "wrote to the cache: " << shape_.text();
  const std::vector<float> values = fp8_out_ ? fp8_out_->values() : out_->values();
  size_t next = 0;
  for (size_t s = 0; s < batch_.sequences().size(); ++s) {
    const auto [context, queries] = batch_.sequences()[s];
    const auto rows = std::span(values).subspan(next, static_cast<size_t>(queries * shape_.out_cols()));
    next += rows.size();
    if (context == 0) {
      EXPECT_EQ(std::ranges::count(rows, 0.0f), std::ssize(rows)) << "padding: " << shape_.text();
      continue;
    }
    const std::vector<double> reference = expected(s);
    const double error = nmse(rows, reference);
    worst_ = std::max(worst_, error);
    EXPECT_LT(error, largest_error(shape_))
        << shape_.text() << ", context " << context << ", queries " << queries << ", sequence " << s << " of "
        << batch_.sequences().size()
        << "; worst: " << worst_head(rows, reference, shape_.heads, shape_.value_size());
  }
}

StepLimits CudaAttentionStep::limits(const std::vector<AttentionWindow>& windows,
                                     std::vector<AttentionKind> kinds) const {
  const ForwardBatch& batch = batch_.batch();
  for (const AttentionWindow window : windows)
    kinds.push_back({shape_.kv_heads, shape_.head_size, window});
  return {.max_tokens = batch.num_tokens,
          .max_sequences = batch.num_sequences,
          .max_blocks = batch.max_blocks,
          .heads = shape_.heads,
          .head_size = shape_.head_size,
          .latent_row = shape_.v_in_k ? shape_.head_size : 0,
          .attention_kinds = std::move(kinds)};
}

float CudaAttentionStep::scale() const {
  return shape_.scale != 0.0f ? shape_.scale : 1.0f / std::sqrt(static_cast<float>(shape_.head_size));
}

std::vector<float> CudaAttentionStep::q_of(size_t s) const {
  return random_values(s, 0, batch_.sequences()[s].queries * shape_.q_cols(), shape_.qkv);
}
std::vector<float> CudaAttentionStep::k_of(size_t s) const {
  return random_values(s, 1, batch_.sequences()[s].context * shape_.k_cols(), shape_.kv);
}
std::vector<float> CudaAttentionStep::v_of(size_t s) const {
  if (!shape_.v_in_k) return random_values(s, 2, batch_.sequences()[s].context * shape_.v_cols(), shape_.kv);
  std::vector<float> values;
  const std::vector<float> keys = k_of(s);
  for (auto row = keys.begin(); row != keys.end(); row += shape_.k_cols())
    values.insert(values.end(), row, row + shape_.v_cols());
  return values;
}

std::vector<std::vector<int32_t>> CudaAttentionStep::chosen_of(size_t s) const {
  const auto [context, queries] = batch_.sequences()[s];
  std::vector<std::vector<int32_t>> chosen;
  for (int32_t t = 0; shape_.most_chosen > 0 && t < queries; ++t)
    chosen.push_back(random_choice(context - queries + t, shape_.most_chosen, 100 * s));
  return chosen;
}

void CudaAttentionStep::fill() {
  std::vector<float> qkv;
  std::vector<int32_t> chosen;
  for (size_t s = 0; s < batch_.sequences().size(); ++s) {
    const std::vector<float> q = q_of(s);
    for (auto row = q.begin(); row != q.end(); row += shape_.q_cols()) {
      qkv.insert(qkv.end(), row, row + shape_.q_cols());
      qkv.insert(qkv.end(), static_cast<size_t>(shape_.qkv_cols() - shape_.q_cols()), NAN);  // not to be read
    }
    for (std::vector<int32_t>& of_query : chosen_of(s)) {
      of_query.resize(static_cast<size_t>(shape_.most_chosen), -1);  // must not be read
      chosen.insert(chosen.end(), of_query.begin(), of_query.end());
    }
    k_.store(batch_, s, k_of(s));
    v_.store(batch_, s, v_of(s));
  }
  k_.upload();
  v_.upload();
  if (chosen_) chosen_->assign(chosen);
  if (!qkv_) {
    if (shape_.most_chosen > 0) chosen_.emplace(chosen);
    qkv_.emplace(shape_.qkv, batch_.batch().num_tokens, shape_.qkv_cols(), qkv);
    out_.emplace(shape_.qkv, batch_.batch().num_tokens, shape_.out_cols());
    if (shape_.out == DType::fp8) fp8_out_.emplace(batch_.batch().num_tokens, shape_.out_cols());
  }
}

std::vector<double> CudaAttentionStep::expected(size_t s) const {
  const auto [context, queries] = batch_.sequences()[s];
  reference::AttentionOptions options = shape_.options;
  options.chosen = chosen_of(s);
  return reference::attention(reference::to_matrix(q_of(s), queries, shape_.q_cols()),
                              reference::to_matrix(k_of(s), context, shape_.k_cols()),
                              reference::to_matrix(v_of(s), context, shape_.v_cols()), shape_.head_size,
                              scale(), options)
      .data;
}

}  // namespace minfer::test
