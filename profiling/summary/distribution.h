#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace minfer {

/// Statistics of a sample; all 0 if the sample is empty.
struct Statistics {
  double mean = 0.0;
  double median = 0.0;  ///< for an even count, the mean of the middle two
  double min = 0.0;
  double max = 0.0;
  double sd = 0.0;  ///< sample standard deviation (n - 1); 0 for one value
};

/// Count, mean and variance of a sample, value by value (Welford, Technometrics 1962). Two samples are merged after Chan, Golub
/// and LeVeque (1979).
class Moments {
 public:
  void add(double value);
  void add(const Moments& other);
  void add_zeros(int64_t count);
  int64_t count() const { return count_; }
  double mean() const { return mean_; }
  double variance() const;  ///< of the sample (n - 1); 0 for one value

 private:
  int64_t count_ = 0;
  double mean_ = 0.0;
  double squares_ = 0.0;  ///< of the distances from the mean
};

/// A sample of values >= 0 in bounded memory. Count, mean, extremes and standard deviation are exact. Quantiles come from bins. A bin is
/// 1/128 of the power of two below it wide (0.8 % at the most) and knows the mean of its values, so quantiles of equal values are exact.
class Distribution {
 public:
  void add(double value);
  void add(const Distribution& other);

  int64_t count() const { return moments_.count(); }
  double mean() const { return moments_.mean(); }
  double min() const { return min_; }
  double max() const { return max_; }
  double variance() const { return moments_.variance(); }
  /// The value below which `share` of the sample lies; interpolated if it falls between two values.
  double quantile(double share) const;
  Statistics statistics() const;
  /// The memory outside the object itself.
  size_t bytes() const { return bins_.capacity() * sizeof(Bin); }

 private:
  struct Bin {
    int64_t count = 0;
    double sum = 0.0;
  };
  Bin& bin(int32_t number);
  double value_at(int64_t rank) const;

  Moments moments_;
  double min_ = 0.0;
  double max_ = 0.0;
  int32_t first_bin_ = 0;  ///< number of bins_.front()
  std::vector<Bin> bins_;
};

}  // namespace minfer
