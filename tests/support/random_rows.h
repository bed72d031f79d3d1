#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "kernels/base/random.h"
#include "kernels/sampling.h"

namespace minfer::test {

/// Rows of random parameters, each neutral in some rows, and the memory of their spans.
class RandomRows {
 public:
  RandomRows(int count, int64_t vocabulary, uint64_t seed) : seed_(seed) {
    counts_.resize(static_cast<size_t>(count));
    biases_.resize(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      SamplingRow row;
      row.seed = static_cast<uint64_t>(next() * 1e15);
      row.position = static_cast<int64_t>(next() * 1e6);
      if (one_in(6)) row.temperature = 0.0f;
      if (one_in(2)) row.temperature *= static_cast<float>(0.3 + 2.0 * next());
      if (one_in(2))
        row.top_k = 1 + static_cast<int32_t>(std::pow(next(), 3.0) * static_cast<double>(vocabulary));
      if (one_in(2)) row.top_p = static_cast<float>(next());
      if (one_in(3)) row.min_p = static_cast<float>(std::pow(next(), 4.0));
      if (one_in(3)) row.repetition_penalty = static_cast<float>(0.7 + next());
      if (one_in(3)) row.presence_penalty = static_cast<float>(2.0 * next() - 1.0);
      if (one_in(3)) row.frequency_penalty = static_cast<float>(next() - 0.5);
      if (one_in(2)) row.top_logprobs = static_cast<int32_t>(next() * 21.0);
      add_entries(static_cast<size_t>(i), vocabulary);
      row.counts = counts_[static_cast<size_t>(i)];
      row.biases = biases_[static_cast<size_t>(i)];
      rows_.push_back(row);
    }
  }
  const std::vector<SamplingRow>& rows() const { return rows_; }

 private:
  double next() { return uniform(seed_, position_++); }
  bool one_in(int n) { return next() * n < 1.0; }
  int32_t token(int64_t vocabulary) { return static_cast<int32_t>(next() * static_cast<double>(vocabulary)); }

  void add_entries(size_t row, int64_t vocabulary) {
    if (one_in(2)) {
      std::set<int32_t> seen;
      for (int k = 0; k < 700; ++k)
        seen.insert(token(vocabulary));
      for (const int32_t token : seen)
        counts_[row].push_back({token, static_cast<int32_t>(next() * 4.0), one_in(2)});
    }
    for (int k = one_in(3) ? 70 : 0; k > 0; --k) {
      const float bias =
          one_in(4) ? -std::numeric_limits<float>::infinity() : static_cast<float>(6.0 * next() - 3.0);
      biases_[row].push_back({token(vocabulary), vocabulary > 5 ? bias : std::max(bias, -1.0f)});
    }
  }

  uint64_t seed_;
  int64_t position_ = 0;
  std::vector<std::vector<TokenCount>> counts_;
  std::vector<std::vector<LogitBias>> biases_;
  std::vector<SamplingRow> rows_;
};

}  // namespace minfer::test
