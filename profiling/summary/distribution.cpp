#include "profiling/summary/distribution.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace minfer {
namespace {

constexpr int kBinsOfOctaveLog2 = 7;
constexpr int kMantissaBits = 52;
// Values outside share the outermost bins; there are 8,065 bins then.
constexpr double kLeast = 0x1p-20, kMost = 0x1p43;

int32_t bin_number(double value) {
  const double within = std::clamp(value, kLeast, kMost);
  return static_cast<int32_t>(std::bit_cast<uint64_t>(within) >> (kMantissaBits - kBinsOfOctaveLog2));
}

}  // namespace

void Moments::add(double value) {
  ++count_;
  const double distance = value - mean_;
  mean_ += distance / static_cast<double>(count_);
  squares_ += distance * (value - mean_);
}

void Moments::add(const Moments& other) {
  if (other.count_ == 0) return;
  const auto before = static_cast<double>(count_), more = static_cast<double>(other.count_);
  const double distance = other.mean_ - mean_;
  mean_ += distance * more / (before + more);
  squares_ += other.squares_ + distance * distance * before * more / (before + more);
  count_ += other.count_;
}

void Moments::add_zeros(int64_t count) {
  Moments zeros;
  zeros.count_ = count;
  add(zeros);
}

double Moments::variance() const {
  return count_ > 1 ? std::max(0.0, squares_) / static_cast<double>(count_ - 1) : 0.0;
}

Distribution::Bin& Distribution::bin(int32_t number) {
  if (bins_.empty()) first_bin_ = number;
  if (number < first_bin_) {
    bins_.insert(bins_.begin(), static_cast<size_t>(first_bin_ - number), Bin{});
    first_bin_ = number;
  }
  const auto index = static_cast<size_t>(number - first_bin_);
  if (index >= bins_.size()) bins_.resize(index + 1);
  return bins_[index];
}

void Distribution::add(double value) {
  min_ = count() == 0 ? value : std::min(min_, value);
  max_ = count() == 0 ? value : std::max(max_, value);
  moments_.add(value);
  Bin& its = bin(bin_number(value));
  ++its.count;
  its.sum += value;
}

void Distribution::add(const Distribution& other) {
  if (other.count() == 0) return;
  min_ = count() == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = count() == 0 ? other.max_ : std::max(max_, other.max_);
  moments_.add(other.moments_);
  for (size_t i = 0; i < other.bins_.size(); ++i) {
    if (other.bins_[i].count == 0) continue;
    Bin& its = bin(other.first_bin_ + static_cast<int32_t>(i));
    its.count += other.bins_[i].count;
    its.sum += other.bins_[i].sum;
  }
}

double Distribution::value_at(int64_t rank) const {
  if (rank <= 0) return min_;
  if (rank >= count() - 1) return max_;
  int64_t below = 0;
  for (const Bin& each : bins_) {
    below += each.count;
    if (rank < below) return std::clamp(each.sum / static_cast<double>(each.count), min_, max_);
  }
  return max_;
}

double Distribution::quantile(double share) const {
  if (count() == 0) return 0.0;
  const double place = std::clamp(share, 0.0, 1.0) * static_cast<double>(count() - 1);
  const auto rank = static_cast<int64_t>(place);
  const double low = value_at(rank);
  const double above = place - static_cast<double>(rank);
  return above > 0.0 ? low + above * (value_at(rank + 1) - low) : low;
}

Statistics Distribution::statistics() const {
  return {.mean = mean(), .median = quantile(0.5), .min = min_, .max = max_, .sd = std::sqrt(variance())};
}

}  // namespace minfer
