#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiling/summary/summary.h"
#include "profiling/text/table.h"

namespace minfer {

/// A feature in which slow steps may differ: its mean over the slowest steps and over all steps.
struct StepFeature {
  std::string name;
  double slowest = 0.0;
  double all = 0.0;
};

/// The slowest hundredth of the steps, compared with all steps.
struct Outliers {
  int64_t steps = 0;                ///< number of slowest steps; 0: too few were recorded
  double from_us = 0.0;             ///< wall time of the shortest of them
  double share = 0.0;               ///< of all steps' wall time
  std::vector<StepFeature> times;   ///< us a step, largest difference first: host spans, idle time, ops
  std::vector<StepFeature> shapes;  ///< of the batch, if they differ
};

/// Gathers outliers while steps come. Memory does not depend on the number of steps: it looks at kMost steps at most.
class OutlierSum {
 public:
  static constexpr size_t kKept = 1'024, kMost = 10'000;
  static constexpr int64_t kFewestSteps = 200;

  void add(const StepSummary& step);
  Outliers result() const;

 private:
  /// The values are in the order of `names_`; values for names that came later are missing.
  struct Step {
    double wall_us = 0.0;
    std::vector<float> values;
  };
  static bool is_longer(const Step& a, const Step& b) { return a.wall_us > b.wall_us; }
  void fill(const StepSummary& step, std::vector<float>& values);

  std::vector<std::string> names_;  ///< of ops, behind the fixed features
  std::unordered_map<std::string, size_t> places_;
  std::vector<double> sums_;
  double wall_us_ = 0.0;
  int64_t steps_ = 0;
  std::vector<Step> slowest_;  ///< a heap, the shortest first
  Step next_;
};

/// Empty if there are no outliers.
Table outliers_table(const Outliers& outliers);

}  // namespace minfer
