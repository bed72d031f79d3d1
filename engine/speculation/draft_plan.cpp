#include "engine/speculation/draft_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

namespace minfer {
namespace {

constexpr float kLeastChance = 0.02f;  ///< less likely drafts are not worth a thought

constexpr uint32_t kExact =
    16;  ///< sizes below this one have an entry each, of larger ones four share a power of two
constexpr int64_t kBaselineAge = 128;  ///< steps after which the baseline is measured again: contexts grow
constexpr int32_t kFewSamples = 3;
/// The factor on the extra cost of drafts, once for few samples and again for each kForgettingSteps steps without a sample:
/// a single measurement may have been disturbed, and drafts that did not pay are tried again, the later the more they lost.
constexpr double kOptimism = 0.6;
constexpr double kUnknownCost = 0.25;  ///< a draft token's cost, as a share of another sequence's token
constexpr int64_t kForgettingSteps = 256;

size_t bucket(int32_t size) {
  const auto number = static_cast<uint32_t>(std::max(size, 0));
  if (number < kExact) return number;
  const auto power = static_cast<uint32_t>(std::bit_width(number)) - 1;
  const uint32_t quarter = (number >> (power - 2)) & 3u;
  return kExact + 4 * (power - 4) + quarter;
}

const size_t kNumBuckets = bucket(INT32_MAX) + 1;

}  // namespace

double DraftPlanner::plan(std::span<DraftCandidate> candidates, const DraftSituation& situation,
                          const DraftCosts& costs) {
  drafts_.clear();
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].num_drafts = 0;
    for (int32_t j = 0; j < candidates[i].most; ++j) {
      const float chance = candidates[i].chances[static_cast<size_t>(j)];
      if (chance < kLeastChance) break;
      drafts_.push_back({chance, static_cast<int32_t>(i), j});
    }
  }
  std::ranges::sort(drafts_, [](const Draft& a, const Draft& b) {
    return std::tuple(-a.chance, a.candidate, a.index) < std::tuple(-b.chance, b.candidate, b.index);
  });

  const double baseline_ns = costs.estimate(situation.num_sequences, 0);
  const int64_t most = std::min<int64_t>(situation.most_drafts, costs.most_drafts(situation.num_sequences));
  double tokens = situation.num_sequences, best_gain = situation.least_gain;
  int32_t num_passes = 0;
  size_t best = 0;
  for (size_t i = 0; i < drafts_.size() && static_cast<int64_t>(i) < most; ++i) {
    tokens += drafts_[i].chance;
    num_passes = std::max(num_passes, drafts_[i].index + 1);
    const double step_ns = costs.estimate(situation.num_sequences, static_cast<int32_t>(i) + 1) +
                           situation.draft_fixed_ns + num_passes * situation.draft_pass_ns;
    const double gain = tokens / step_ns * baseline_ns / situation.num_sequences;
    if (gain <= best_gain) continue;
    best_gain = gain;
    best = i + 1;
  }
  for (size_t i = 0; i < best; ++i)
    ++candidates[static_cast<size_t>(drafts_[i].candidate)].num_drafts;
  return best == 0 ? 1.0 : best_gain;
}

DraftCosts::DraftCosts() : rows_(kNumBuckets) {}

void DraftCosts::add(int32_t num_sequences, int32_t num_drafts, int64_t ns) {
  Row& row = rows_[bucket(num_sequences)];
  if (row.cells.empty()) row.cells.resize(kNumBuckets);
  Cell& cell = row.cells[bucket(num_drafts)];
  ++row.clock;
  cell.samples_ns[static_cast<size_t>(cell.num_samples) % kSamples] = static_cast<float>(ns);
  ++cell.num_samples;
  cell.num_drafts = num_drafts;
  cell.time = row.clock;
  std::array<float, kSamples> sorted = cell.samples_ns;
  const int32_t num_kept = std::min(cell.num_samples, static_cast<int32_t>(kSamples));
  const auto middle = sorted.begin() + (num_kept - 1) / 2;
  std::nth_element(sorted.begin(), middle, sorted.begin() + num_kept);
  cell.median_ns = *middle;
}

bool DraftCosts::lacks_baseline(int32_t num_sequences) const {
  const Row& row = rows_[bucket(num_sequences)];
  if (row.cells.empty()) return true;
  return row.cells[0].num_samples < kFewSamples || row.clock - row.cells[0].time > kBaselineAge;
}

int32_t DraftCosts::most_drafts(int32_t num_sequences) const {
  const Row& row = rows_[bucket(num_sequences)];
  int32_t most_known = 2 + num_sequences / 4;
  for (const Cell& cell : row.cells)
    most_known = std::max(most_known, cell.num_drafts);
  return 2 * most_known;
}

double DraftCosts::trusted_ns(const Row& row, const Cell& cell) const {
  const double baseline = row.cells[0].median_ns, measured = cell.median_ns;
  if (measured <= baseline) return measured;
  const int64_t num_doubts =
      (cell.num_samples < kFewSamples ? 1 : 0) + (row.clock - cell.time) / kForgettingSteps;
  return baseline + std::pow(kOptimism, static_cast<double>(num_doubts)) * (measured - baseline);
}

double DraftCosts::estimate(int32_t num_sequences, int32_t num_drafts) const {
  const Row& row = rows_[bucket(num_sequences)];
  if (row.cells.empty() || row.cells[0].num_samples == 0) return 0.0;
  if (num_drafts == 0) return row.cells[0].median_ns;
  const size_t wanted = bucket(num_drafts);
  size_t below = wanted, above = wanted;
  while (row.cells[below].num_samples == 0)
    --below;
  while (above < kNumBuckets && row.cells[above].num_samples == 0)
    ++above;
  const Cell& low = row.cells[below];
  const double low_ns = trusted_ns(row, low);
  if (above == below) return low_ns;
  const double beyond = num_drafts - low.num_drafts;
  if (above < kNumBuckets) {
    const Cell& high = row.cells[above];
    return low_ns + (trusted_ns(row, high) - low_ns) * beyond / (high.num_drafts - low.num_drafts);
  }
  // As the last known drafts; if there are none, as if drafts cost little: promising drafts are tried.
  if (low.num_drafts == 0) return low_ns * (1.0 + kUnknownCost * num_drafts / (num_sequences + 3.0));
  const double slope = std::max(0.0, (low_ns - row.cells[0].median_ns) / low.num_drafts);
  return low_ns + slope * beyond;
}

}  // namespace minfer
