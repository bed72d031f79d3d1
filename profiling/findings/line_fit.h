#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace minfer {

/// A step's time against its work: y = fixed + each * x, by least squares, in constant memory.
class LineFit {
 public:
  void add(double x, double y) {
    ++count_;
    x_ += x;
    y_ += y;
    xx_ += x * x;
    xy_ += x * y;
    yy_ += y * y;
    least_x_ = std::min(least_x_, x);
    most_x_ = std::max(most_x_, x);
  }
  int64_t count() const { return count_; }
  double mean_x() const { return count_ > 0 ? x_ / static_cast<double>(count_) : 0.0; }
  double mean_y() const { return count_ > 0 ? y_ / static_cast<double>(count_) : 0.0; }
  /// True if there are enough points, far enough apart, for a meaningful line.
  bool is_known() const { return count_ >= 8 && most_x_ >= 2.0 * least_x_ && each() > 0.0 && fixed() > 0.0; }
  double each() const {
    const double n = static_cast<double>(count_);
    const double spread = n * xx_ - x_ * x_;
    return spread > 0.0 ? (n * xy_ - x_ * y_) / spread : 0.0;
  }
  /// The correlation of x and y: 1 if all points lie on a rising line.
  double correlation() const {
    const double n = static_cast<double>(count_);
    const double spread = (n * xx_ - x_ * x_) * (n * yy_ - y_ * y_);
    return spread > 0.0 ? (n * xy_ - x_ * y_) / std::sqrt(spread) : 0.0;
  }
  double fixed() const { return mean_y() - each() * mean_x(); }

 private:
  int64_t count_ = 0;
  double x_ = 0.0, y_ = 0.0, xx_ = 0.0, xy_ = 0.0, yy_ = 0.0;
  double least_x_ = std::numeric_limits<double>::max(), most_x_ = 0.0;
};

}  // namespace minfer
