#include "profiling/counters/sample_attribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/base/error.h"

namespace minfer {
namespace {

constexpr int32_t kIdle = 0;
constexpr double kIdleRunNs = 1'000.0;
constexpr size_t kAllGroups = std::numeric_limits<size_t>::max();
constexpr int kMostIterations = 2'000;
/// Change of an estimate, relative to it, at which the iteration ends.
constexpr double kTolerance = 1e-6;

/// The bytes expected of an op from its time: the start of an estimate.
std::vector<double> in_proportion_to_time(std::span<const double> sum_ns, std::span<const double> runs) {
  std::vector<double> amounts(runs.size());
  for (size_t slot = 0; slot < runs.size(); ++slot)
    amounts[slot] = runs[slot] > 0.0 ? sum_ns[slot] / runs[slot] : 0.0;
  amounts[kIdle] = kIdleRunNs;
  return amounts;
}

}  // namespace

SampleAttribution::SampleAttribution(std::vector<Counter> counters)
    : counters_(std::move(counters)), pure_(counters_.size()) {
  grow(1);
}

void SampleAttribution::grow(size_t num_slots) {
  num_slots_ = std::max(num_slots_, num_slots);
  for (std::vector<double>& column : pure_)
    column.resize(num_slots_ * kGroups);
  covered_.resize(num_slots_ * kGroups);
  sum_ns_.resize(num_slots_);
  runs_.resize(num_slots_);
  samples_.resize(num_slots_);
}

/// The steps' ops, and idle time between steps of successive numbers, in the order of time.
std::vector<SampleAttribution::Segment> SampleAttribution::lay_out(std::span<const StepSpans> steps) {
  std::vector<Segment> segments;
  const StepSpans* before = nullptr;
  for (const StepSpans& step : steps) {
    if (step.bounds_ns.size() < 2 || (before != nullptr && step.begin_ns() < before->end_ns())) {
      fail("attribution of counters: step {} has no ops, or begins before step {} ends", step.step,
           before != nullptr ? before->step : -1);
    }
    const auto group = static_cast<uint32_t>(num_steps_++ % kGroups);
    if (before != nullptr && before->step + 1 == step.step && before->end_ns() < step.begin_ns())
      segments.push_back({before->end_ns(), step.begin_ns(), kIdle, group});
    const size_t num_ops = step.bounds_ns.size() - 1;
    grow(static_cast<size_t>(step.first_slot) + num_ops + 1);
    for (size_t i = 0; i < num_ops; ++i) {
      const auto slot = static_cast<int32_t>(step.first_slot + static_cast<int32_t>(i) + 1);
      const int64_t begin_ns = step.bounds_ns[i], end_ns = step.bounds_ns[i + 1];
      sum_ns_[static_cast<size_t>(slot)] += static_cast<double>(end_ns - begin_ns);
      runs_[static_cast<size_t>(slot)] += 1.0;
      if (begin_ns < end_ns) segments.push_back({begin_ns, end_ns, slot, group});
    }
    before = &step;
  }
  return segments;
}

/// The amount that is divided among ops: bytes, or a share times its duration.
double SampleAttribution::amount(const CounterSamples& samples, size_t sample, size_t column) const {
  double value = samples.value(sample, column);
  if (!std::isfinite(value)) return 0.0;
  if (counts_bytes(counters_[column])) return value;
  // A share of lookups, not of time: in a sample with few lookups the share says little.
  const int lookups = samples.column(Counter::l2_throughput);
  if (counters_[column] == Counter::l2_hit && lookups >= 0)
    value *= samples.value(sample, static_cast<size_t>(lookups));
  return value * static_cast<double>(samples.end_ns[sample] - samples.begin_ns[sample]);
}

void SampleAttribution::add_sample(const CounterSamples& samples, size_t sample,
                                   std::span<const Segment> segments, int64_t begin_ns, int64_t end_ns) {
  const uint32_t group = segments.front().group;
  const auto first_piece = static_cast<uint32_t>(pieces_.size());
  for (const Segment& segment : segments) {
    const int64_t overlap_ns = std::min(end_ns, segment.end_ns) - std::max(begin_ns, segment.begin_ns);
    const double run_ns =
        segment.slot == kIdle ? kIdleRunNs : static_cast<double>(segment.end_ns - segment.begin_ns);
    const double share = static_cast<double>(overlap_ns) / run_ns;
    covered_[entry(segment.slot, group)] += share;
    ++samples_[static_cast<size_t>(segment.slot)];
    if (segments.size() > 1) pieces_.push_back({segment.slot, share});
  }
  if (segments.size() > 1) mixed_.push_back({first_piece, static_cast<uint32_t>(pieces_.size()), group});
  for (size_t column = 0; column < counters_.size(); ++column) {
    const double found = amount(samples, sample, column);
    if (segments.size() > 1) {
      mixed_amounts_.push_back(found);
    } else {
      pure_[column][entry(segments.front().slot, group)] += found;
    }
  }
}

void SampleAttribution::add_window(const CounterSamples& samples, std::span<const StepSpans> steps) {
  if (samples.counters != counters_) fail("attribution of counters: a window of other counters");
  const std::vector<Segment> segments = lay_out(steps);
  std::ranges::fill(samples_, 0);
  size_t first = 0;
  for (size_t sample = 0; sample < samples.size(); ++sample) {
    const int64_t begin_ns = samples.begin_ns[sample];
    const int64_t end_ns = samples.end_ns[sample];
    while (first < segments.size() && segments[first].end_ns <= begin_ns)
      ++first;
    if (first == segments.size()) break;
    if (segments[first].begin_ns > begin_ns || end_ns <= begin_ns) continue;  // not known what ran
    size_t last = first;
    while (segments[last].end_ns < end_ns && last + 1 < segments.size() &&
           segments[last + 1].begin_ns == segments[last].end_ns) {
      ++last;
    }
    if (segments[last].end_ns < end_ns) continue;
    add_sample(samples, sample, std::span(segments).subspan(first, last - first + 1), begin_ns, end_ns);
  }
}

/// Amounts of a run by slot, from all samples but those of one group of steps, iterated from `amounts` on.
std::vector<double> SampleAttribution::solve(size_t column, size_t without_group,
                                             std::vector<double> amounts) const {
  std::vector<double> fixed(num_slots_), covered(num_slots_);
  for (size_t slot = 0; slot < num_slots_; ++slot) {
    for (size_t group = 0; group < kGroups; ++group) {
      if (group == without_group) continue;
      fixed[slot] += pure_[column][slot * kGroups + group];
      covered[slot] += covered_[slot * kGroups + group];
    }
  }
  std::vector<double> given;
  for (int iteration = 0; iteration < kMostIterations; ++iteration) {
    given = fixed;
    for (size_t i = 0; i < mixed_.size(); ++i) {
      const Mixed& mixed = mixed_[i];
      const double found = mixed_amounts_[i * counters_.size() + column];
      if (mixed.group == without_group || found <= 0.0) continue;
      const std::span<const Piece> pieces(pieces_.data() + mixed.first_piece,
                                          mixed.end_piece - mixed.first_piece);
      double expected = 0.0;
      for (const Piece& piece : pieces)
        expected += piece.share * amounts[static_cast<size_t>(piece.slot)];
      if (expected <= 0.0) continue;
      for (const Piece& piece : pieces) {
        const auto slot = static_cast<size_t>(piece.slot);
        given[slot] += found * piece.share * amounts[slot] / expected;
      }
    }
    double largest = 0.0, change = 0.0;
    for (size_t slot = 0; slot < num_slots_; ++slot) {
      if (covered[slot] <= 0.0) continue;
      const double next = given[slot] / covered[slot];
      change = std::max(change, std::abs(next - amounts[slot]));
      largest = std::max(largest, next);
      amounts[slot] = next;
    }
    if (change <= kTolerance * largest) break;
  }
  return amounts;
}

/// The standard errors of a column's amounts, by slot.
std::vector<double> SampleAttribution::errors_of(size_t column, const std::vector<double>& amounts) const {
  const size_t num_groups = std::min(kGroups, num_steps_);
  std::vector<double> errors(num_slots_);
  for (size_t group = 0; group < num_groups; ++group) {
    const std::vector<double> without = solve(column, group, amounts);
    for (size_t slot = 0; slot < num_slots_; ++slot)
      errors[slot] += std::pow(without[slot] - amounts[slot], 2);
  }
  for (size_t slot = 0; slot < num_slots_; ++slot) {
    errors[slot] = runs_[slot] < 2.0 ? std::numeric_limits<double>::infinity()
                                     : std::sqrt(errors[slot] * (static_cast<double>(num_groups) - 1.0) /
                                                 static_cast<double>(num_groups));
  }
  return errors;
}

std::vector<OpEstimate> SampleAttribution::estimate() const {
  std::vector<OpEstimate> estimates(num_slots_ - 1);
  const std::vector<double> start = in_proportion_to_time(sum_ns_, runs_);
  std::vector<std::vector<double>> amounts;  // by column
  std::vector<double> read_errors(num_slots_);
  for (size_t column = 0; column < counters_.size(); ++column) {
    const bool is_written = counters_[column] == Counter::dram_written_bytes;
    amounts.push_back(is_written ? std::vector<double>(num_slots_) : solve(column, kAllGroups, start));
    if (counters_[column] == Counter::dram_read_bytes) read_errors = errors_of(column, amounts.back());
  }
  const auto found = std::ranges::find(counters_, Counter::l2_throughput);
  const auto lookups = static_cast<size_t>(found - counters_.begin());
  for (size_t slot = 1; slot < num_slots_; ++slot) {
    OpEstimate& estimate = estimates[slot - 1];
    for (size_t group = 0; group < kGroups; ++group)
      estimate.runs += covered_[slot * kGroups + group];
    estimate.mean_ns = runs_[slot] > 0.0 ? sum_ns_[slot] / runs_[slot] : 0.0;
    estimate.samples = samples_[slot];
    if (estimate.runs > 0.0) estimate.read_error = read_errors[slot];
    for (size_t column = 0; column < counters_.size(); ++column) {
      double unit = 1.0;
      if (!counts_bytes(counters_[column])) unit = estimate.mean_ns;
      if (counters_[column] == Counter::l2_hit && lookups < counters_.size()) unit = amounts[lookups][slot];
      const bool is_known = estimate.runs > 0.0 && unit > 0.0;
      estimate.values.push_back(is_known ? amounts[column][slot] / unit : 0.0);
    }
  }
  return estimates;
}

CountedBytes bytes_between(const CounterSamples& samples, size_t column, int64_t begin_ns, int64_t end_ns,
                           bool alone_before, bool alone_after) {
  CountedBytes counted;
  int64_t covered_ns = 0;
  const auto first = std::ranges::upper_bound(samples.end_ns, begin_ns) - samples.end_ns.begin();
  for (auto i = static_cast<size_t>(first); i < samples.size() && samples.begin_ns[i] < end_ns; ++i) {
    const int64_t overlap_ns = std::min(end_ns, samples.end_ns[i]) - std::max(begin_ns, samples.begin_ns[i]);
    const double value = samples.value(i, column);
    if (!std::isfinite(value)) continue;
    covered_ns += overlap_ns;
    const bool is_whole =
        (samples.begin_ns[i] >= begin_ns || alone_before) && (samples.end_ns[i] <= end_ns || alone_after);
    const auto length_ns = static_cast<double>(samples.end_ns[i] - samples.begin_ns[i]);
    counted.bytes += is_whole ? value : value * static_cast<double>(overlap_ns) / length_ns;
  }
  if (end_ns > begin_ns)
    counted.covered = static_cast<double>(covered_ns) / static_cast<double>(end_ns - begin_ns);
  return counted;
}

}  // namespace minfer
