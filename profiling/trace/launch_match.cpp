#include <algorithm>

#include "profiling/trace/step_trace.h"

namespace minfer {
namespace {

constexpr int32_t kMostLeftOver = 512;

/// The search for the path from (0, 0) to (records, launches) that has the fewest steps to the right (a record is left over) and down
/// (a launch is), the rest being diagonal (they match).
class PathSearch {
 public:
  PathSearch(std::span<const int32_t> records, std::span<const int32_t> launches)
      : records_(records),
        launches_(launches),
        width_(static_cast<int32_t>(records.size())),
        height_(static_cast<int32_t>(launches.size())) {}

  /// Sets launch_of[record] for each match.
  void run(std::vector<int32_t>& launch_of) {
    const int32_t most = std::min(kMostLeftOver, width_ + height_);
    for (int32_t cost = 0; cost <= most; ++cost) {
      if (advance(cost)) return follow({width_, height_}, cost, launch_of);
    }
    if (const Point end = furthest(); is_inside(end)) follow(end, most, launch_of);
  }

 private:
  struct Point {
    int32_t record = 0;
    int32_t launch = 0;
  };

  bool fits(Point at) const {
    const int32_t launch = launches_[static_cast<size_t>(at.launch)];
    return launch == kAnyName || launch == records_[static_cast<size_t>(at.record)];
  }
  /// True if a path of `cost` reaches `diagonal` (record - launch) by a step down.
  bool comes_down(int32_t diagonal, int32_t cost) const {
    if (diagonal == -cost) return true;
    return diagonal != cost && reached(diagonal - 1, cost - 1) < reached(diagonal + 1, cost - 1);
  }
  /// The furthest record on `diagonal` that a path of `cost` comes to.
  int32_t reached(int32_t diagonal, int32_t cost) const {
    return reached_[static_cast<size_t>(cost)][static_cast<size_t>(diagonal + cost)];
  }
  /// Where a path of `cost` enters `diagonal`.
  Point entry(int32_t diagonal, int32_t cost) const {
    if (cost == 0) return {};
    const int32_t record =
        comes_down(diagonal, cost) ? reached(diagonal + 1, cost - 1) : reached(diagonal - 1, cost - 1) + 1;
    return {record, record - diagonal};
  }
  bool is_inside(Point at) const {
    return at.record <= width_ && at.launch <= height_ && at.record >= 0 && at.launch >= 0;
  }

  /// Finds the furthest points of paths of `cost`. True: one is the end.
  bool advance(int32_t cost) {
    reached_.emplace_back(static_cast<size_t>(2 * cost) + 1, -1);
    for (int32_t diagonal = -cost; diagonal <= cost; diagonal += 2) {
      Point at = entry(diagonal, cost);
      while (at.record < width_ && at.launch < height_ && is_inside(at) && fits(at)) {
        ++at.record;
        ++at.launch;
      }
      reached_.back()[static_cast<size_t>(diagonal + cost)] = at.record;
      if (at.record == width_ && at.launch == height_) return true;
    }
    return false;
  }

  Point furthest() const {
    const auto cost = static_cast<int32_t>(reached_.size()) - 1;
    Point best{-1, -1};
    for (int32_t diagonal = -cost; diagonal <= cost; diagonal += 2) {
      const Point at{reached(diagonal, cost), reached(diagonal, cost) - diagonal};
      if (is_inside(at) && at.record + at.launch >= best.record + best.launch) best = at;
    }
    return best;
  }

  /// Goes back from `at`, which a path of `cost` reaches.
  void follow(Point at, int32_t cost, std::vector<int32_t>& launch_of) const {
    for (; cost >= 0; --cost) {
      const int32_t diagonal = at.record - at.launch;
      const Point begin = entry(diagonal, cost);
      while (at.record > begin.record) {
        --at.record;
        --at.launch;
        launch_of[static_cast<size_t>(at.record)] = at.launch;
      }
      if (cost == 0) return;
      comes_down(diagonal, cost) ? --at.launch : --at.record;
    }
  }

  std::span<const int32_t> records_, launches_;
  int32_t width_, height_;
  std::vector<std::vector<int32_t>> reached_;  ///< by cost, then by diagonal + cost
};

}  // namespace

LaunchMatch match_launches(std::span<const int32_t> records, std::span<const int32_t> launches) {
  LaunchMatch match;
  match.launch_of.assign(records.size(), -1);
  PathSearch(records, launches).run(match.launch_of);
  match.unmatched = static_cast<int32_t>(std::ranges::count(match.launch_of, -1));
  match.missing =
      static_cast<int32_t>(launches.size()) - (static_cast<int32_t>(records.size()) - match.unmatched);
  return match;
}

}  // namespace minfer
