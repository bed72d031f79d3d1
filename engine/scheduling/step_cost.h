#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "profiling/record/recorder.h"

namespace minfer {

/// Fits y = sum of coefficient * feature, with coefficients of at least 0, sample by sample: weighted least
/// squares with forgetting. It keeps the normal equations and solves them by sweeps of coordinate descent
/// from the coefficients before (projected Gauss-Seidel). So memory and time are constant. A direction that
/// no recent sample covers keeps its coefficients. Equal samples give equal coefficients, bit by bit.
///
/// Errors count relative to the smaller of the sample and the expected value, and from kOutlier on only
/// linearly (Huber, Ann. Math. Statist. 1964), so a step that something else held up moves the fit little. Many
/// outliers in a row, all above or all below, are a change for good: earlier samples then count for little.
///
/// Features should be about 1. The first features explain most of what the samples leave open.
template <size_t N>
class OnlineFit {
 public:
  using Features = std::array<double, N>;

  /// Adds a sample. `y` and the features: finite and at least 0. A sample without a positive y is ignored.
  void add(const Features& x, double y) {
    if (!(y > 0.0) || !std::isfinite(y)) return;
    const double expected = predict(x);
    const double scale = std::max(std::min(expected, y), kLeastScale * std::max(expected, y));
    const double error = std::abs(y - expected) / scale;
    const bool is_outlier = count_ >= kTrusted && error > kOutlier;
    const double weight = (is_outlier ? kOutlier / error : 1.0) / (scale * scale);
    const double remembered = has_changed(is_outlier, y > expected) ? kRememberedOfOld : kRemembered;
    for (size_t i = 0; i < N; ++i) {
      for (size_t j = 0; j < N; ++j)
        products_[i][j] = remembered * products_[i][j] + weight * x[i] * x[j];
      results_[i] = remembered * results_[i] + weight * x[i] * y;
    }
    ++count_;
    for (int sweep = 0; sweep < kSweeps; ++sweep)
      this->sweep();
  }

  /// 0: nothing is known.
  double predict(const Features& x) const {
    double sum = 0.0;
    for (size_t i = 0; i < N; ++i)
      sum += coefficients_[i] * x[i];
    return sum;
  }

  int64_t count() const { return count_; }
  const Features& coefficients() const { return coefficients_; }

 private:
  static constexpr double kRemembered =
      0.995;                               // of a sample's weight by the next one: about 200 of them count
  static constexpr double kOutlier = 0.3;  // relative error
  static constexpr double kLeastScale = 0.1;
  static constexpr int64_t kTrusted = 8;  // samples before anything is taken for an outlier
  static constexpr int32_t kChange = 12;  // outliers in a row
  static constexpr double kRememberedOfOld = 0.01;
  static constexpr int kSweeps = 4;
  static constexpr double kNothing = 1e-100;

  bool has_changed(bool is_outlier, bool is_above) {
    const int32_t step = is_above ? 1 : -1;
    outliers_in_a_row_ = !is_outlier ? 0 : outliers_in_a_row_ * step > 0 ? outliers_in_a_row_ + step : step;
    if (std::abs(outliers_in_a_row_) < kChange) return false;
    outliers_in_a_row_ = 0;
    return true;
  }

  void sweep() {
    for (size_t i = 0; i < N; ++i) {
      // Weights that have decayed to nothing carry no information.
      if (!(products_[i][i] > kNothing)) continue;
      double rest = results_[i];
      for (size_t j = 0; j < N; ++j)
        if (j != i) rest -= products_[i][j] * coefficients_[j];
      coefficients_[i] = std::max(0.0, rest / products_[i][i]);
    }
  }

  std::array<std::array<double, N>, N> products_{};
  Features results_{};
  Features coefficients_{};
  int64_t count_ = 0;
  int32_t outliers_in_a_row_ = 0;  ///< below 0: samples below what was expected
};

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
