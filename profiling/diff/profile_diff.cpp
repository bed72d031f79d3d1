#include "profiling/diff/profile_diff.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace minfer {
namespace {

using Kinds = std::map<StepKind, KindSum>;

/// A kind of step that both have.
struct Pair {
  StepKind kind;
  const KindSum* a = nullptr;
  const KindSum* b = nullptr;
  double weight = 0.0;
};

/// Weighted means of one side, with the inputs of Welch's t.
struct Side {
  double us = 0.0;
  double variance = 0.0;          ///< of `us`
  double variance_freedom = 0.0;  ///< sum of squared variances over their degrees of freedom
  bool has_spread = true;

  void add(const Moments& times, double weight) {
    const auto steps = static_cast<double>(times.count());
    us += weight * times.mean();
    const double its = weight * weight * times.variance() / steps;
    variance += its;
    if (steps > 1.0) {
      variance_freedom += its * its / (steps - 1.0);
    } else if (times.mean() > 0.0) {  // an op that a kind's only step does not run takes nothing, for certain
      has_spread = false;
    }
  }
};

double weighted(const std::vector<Pair>& pairs, const auto& value) {
  double sum = 0.0;
  for (const Pair& pair : pairs)
    sum += pair.weight * value(pair);
  return sum;
}

/// `of`: the times of one kind of step, on either side.
template <class Of>
DiffTime diff_time(const std::vector<Pair>& pairs, const Of& of) {
  Side a, b;
  for (const Pair& pair : pairs) {
    a.add(of(*pair.a, true), pair.weight);
    b.add(of(*pair.b, false), pair.weight);
  }
  const double a_tokens = weighted(pairs, [](const Pair& pair) { return pair.a->tokens.mean(); });
  const double b_tokens = weighted(pairs, [](const Pair& pair) { return pair.b->tokens.mean(); });
  DiffTime time{.a_us = a.us, .b_us = b.us, .a_token_us = a.us / a_tokens, .b_token_us = b.us / b_tokens};
  if (!a.has_spread || !b.has_spread) return time;
  const double a_scale = 1.0 / (a_tokens * a_tokens), b_scale = 1.0 / (b_tokens * b_tokens);
  const double variance = a.variance * a_scale + b.variance * b_scale;
  const double freedom_part = a.variance_freedom * a_scale * a_scale + b.variance_freedom * b_scale * b_scale;
  time.margin_us = variance > 0.0 && freedom_part > 0.0
                       ? t_quantile(variance * variance / freedom_part) * std::sqrt(variance)
                       : 0.0;
  return time;
}

/// Times of an op in all steps of a kind: 0 in those that did not run it.
Moments op_times(const KindSum& kind, const DiffOpKey& key) {
  Moments times;
  int64_t steps = 0;
  if (const auto op = kind.ops.find(key); op != kind.ops.end()) {
    times = op->second.us;
    steps = times.count();
  }
  times.add_zeros(std::max<int64_t>(0, kind.wall_us.count() - steps));
  return times;
}

std::vector<Pair> pairs_of(const Kinds& a, const Kinds& b) {
  std::vector<Pair> pairs;
  double steps = 0.0;
  for (const auto& [kind, sum] : a) {
    const auto other = b.find(kind);
    if (other == b.end()) continue;
    const auto of_both = static_cast<double>(sum.wall_us.count() + other->second.wall_us.count());
    pairs.push_back({kind, &sum, &other->second, of_both});
    steps += of_both;
  }
  for (Pair& pair : pairs)
    pair.weight /= steps;
  return pairs;
}

Kinds whole_phases(const Kinds& kinds) {
  Kinds phases;
  for (const auto& [kind, sum] : kinds)
    phases[{kind.phase, 0}].add(sum);
  return phases;
}

std::vector<std::pair<StepKind, int64_t>> left_out(const Kinds& kinds, const Kinds& others) {
  std::vector<std::pair<StepKind, int64_t>> only;
  for (const auto& [kind, sum] : kinds) {
    if (!others.contains(kind)) only.emplace_back(kind, sum.wall_us.count());
  }
  return only;
}

/// All steps of one side that are compared.
KindSum side_of(const std::vector<Pair>& pairs, const KindSum* Pair::*side) {
  KindSum all;
  for (const Pair& pair : pairs)
    all.add(*(pair.*side));
  return all;
}

/// The first op of the name.
const OpInfo* info_of(const ProfileHeader& header, const std::string& op) {
  const auto found = std::ranges::find(header.ops, op, &OpInfo::name);
  return found == header.ops.end() ? nullptr : &*found;
}

bool is_same_op(const OpInfo* a, const OpInfo* b) {
  return a != nullptr && b != nullptr && a->kind == b->kind && a->scope == b->scope &&
         a->in_features == b->in_features && a->out_features == b->out_features;
}

/// How an op launched kernels in the steps of a side.
std::vector<LaunchDiff> launches_of(const KindSum& side, const DiffOpKey& key,
                                    const std::vector<KernelLaunch>& table) {
  std::vector<LaunchDiff> launches;
  const auto op = side.ops.find(key);
  if (op == side.ops.end()) return launches;
  for (const auto& [index, steps] : op->second.launches) {
    const KernelLaunch& launch = table.at(static_cast<size_t>(index));
    launches.push_back({launch.kernel, launch.path, launch.grid, launch.block, steps});
  }
  std::ranges::stable_sort(launches, std::ranges::greater{}, &LaunchDiff::steps);
  return launches;
}

std::set<std::string> kernels_of(const std::vector<LaunchDiff>& launches) {
  std::set<std::string> names;
  for (const LaunchDiff& launch : launches)
    names.insert(launch.kernel);
  return names;
}

/// The launches that `others` lacks: by kernel name and path, with `by_grid` also by grid and block. One for each kernel, the most common.
std::vector<LaunchDiff> launches_beside(const std::vector<LaunchDiff>& launches,
                                        const std::vector<LaunchDiff>& others, bool by_grid) {
  const auto is_same_kernel = [](const LaunchDiff& a, const LaunchDiff& b) {
    return a.kernel == b.kernel && a.path == b.path;
  };
  std::vector<LaunchDiff> beside;
  for (const LaunchDiff& launch : launches) {
    const auto is_same = [&](const LaunchDiff& other) {
      return is_same_kernel(launch, other) &&
             (!by_grid || (launch.grid == other.grid && launch.block == other.block));
    };
    if (std::ranges::any_of(others, is_same)) continue;
    const auto found =
        std::ranges::find_if(beside, [&](const LaunchDiff& other) { return is_same_kernel(launch, other); });
    found == beside.end() ? beside.push_back(launch) : void(++found->more_grids);
  }
  return beside;
}

/// The kinds of steps with a larger share in one profile than in the other.
std::vector<ShapeDiff> shape_diffs(const Kinds& a, const Kinds& b) {
  std::map<StepKind, ShapeDiff> shapes;
  double a_steps = 0.0, b_steps = 0.0;
  for (const auto& [kind, sum] : a) {
    shapes[kind].a_steps = sum.wall_us.count();
    a_steps += static_cast<double>(sum.wall_us.count());
  }
  for (const auto& [kind, sum] : b) {
    shapes[kind].b_steps = sum.wall_us.count();
    b_steps += static_cast<double>(sum.wall_us.count());
  }
  std::vector<ShapeDiff> diffs;
  for (auto& [kind, shape] : shapes) {
    shape.kind = kind;
    shape.a_share = static_cast<double>(shape.a_steps) / a_steps;
    shape.b_share = static_cast<double>(shape.b_steps) / b_steps;
    if (shape.change() != 0.0) diffs.push_back(shape);
  }
  std::ranges::stable_sort(diffs, std::ranges::greater{},
                           [](const ShapeDiff& shape) { return std::abs(shape.change()); });
  return diffs;
}

double bytes_of(const std::vector<Pair>& pairs, const KindSum* Pair::*side, const DiffOpKey& key) {
  return weighted(pairs, [&](const Pair& pair) {
    const KindSum& sum = *(pair.*side);
    const auto op = sum.ops.find(key);
    return op == sum.ops.end() ? 0.0 : op->second.bytes / static_cast<double>(sum.wall_us.count());
  });
}

std::vector<OpDiff> op_diffs(const std::vector<Pair>& pairs, const DiffSums& a, const DiffSums& b) {
  const KindSum all_a = side_of(pairs, &Pair::a), all_b = side_of(pairs, &Pair::b);
  // Steps of the same number of tokens have the same grids.
  const bool is_one_batch = std::ranges::all_of(
      pairs, [](const Pair& pair) { return pair.kind.phase == StepPhase::decode && pair.kind.tokens > 0; });
  std::vector<OpDiff> diffs;
  const auto add = [&](const DiffOpKey& a_key, const DiffOpKey& b_key, OpDiff::State state) {
    OpDiff& diff = diffs.emplace_back(OpDiff{.op = a_key.op, .phase = a_key.phase, .state = state});
    if (b_key.op != a_key.op) diff.renamed_to = b_key.op;
    diff.time = diff_time(
        pairs, [&](const KindSum& kind, bool is_a) { return op_times(kind, is_a ? a_key : b_key); });
    diff.a_bytes = bytes_of(pairs, &Pair::a, a_key);
    diff.b_bytes = bytes_of(pairs, &Pair::b, b_key);
    const std::vector<LaunchDiff> a_launches = launches_of(all_a, a_key, a.launches());
    const std::vector<LaunchDiff> b_launches = launches_of(all_b, b_key, b.launches());
    diff.a_launches = launches_beside(a_launches, b_launches, is_one_batch);
    diff.b_launches = launches_beside(b_launches, a_launches, is_one_batch);
    const std::set<std::string> a_kernels = kernels_of(a_launches), b_kernels = kernels_of(b_launches);
    std::ranges::set_difference(a_kernels, b_kernels, std::back_inserter(diff.a_kernels));
    std::ranges::set_difference(b_kernels, a_kernels, std::back_inserter(diff.b_kernels));
  };
  std::map<DiffOpKey, KindSum::Op> rest = all_b.ops;
  for (const auto& op_of_a : all_a.ops) {
    const DiffOpKey& key = op_of_a.first;
    auto in_b = rest.find(key);
    if (in_b == rest.end())
      in_b = std::ranges::find_if(rest, [&](const auto& other) {
        return other.first.phase == key.phase && !all_a.ops.contains(other.first) &&
               is_same_op(info_of(a.header(), key.op), info_of(b.header(), other.first.op));
      });
    if (in_b == rest.end()) {
      add(key, key, OpDiff::State::removed);
    } else {
      add(key, in_b->first, OpDiff::State::both);
      rest.erase(in_b);
    }
  }
  for (const auto& [key, op] : rest)
    add(key, key, OpDiff::State::added);
  return diffs;
}

std::vector<PhaseDiff> phase_diffs(const std::vector<Pair>& pairs) {
  std::vector<PhaseDiff> diffs;
  for (const StepPhase phase : {StepPhase::prefill, StepPhase::decode, StepPhase::mixed}) {
    std::vector<Pair> its;
    std::ranges::copy_if(pairs, std::back_inserter(its),
                         [&](const Pair& pair) { return pair.kind.phase == phase; });
    if (its.empty()) continue;
    double weight = 0.0;
    PhaseDiff& diff = diffs.emplace_back(PhaseDiff{.phase = phase});
    for (const Pair& pair : its) {
      diff.a_steps += pair.a->wall_us.count();
      diff.b_steps += pair.b->wall_us.count();
      weight += pair.weight;
    }
    for (Pair& pair : its)
      pair.weight /= weight;
    diff.time = diff_time(its, [](const KindSum& kind, bool) { return kind.wall_us; });
  }
  return diffs;
}

/// The least share of the profiles' step time that must be in kinds of steps that both have.
constexpr double kCommonShare = 0.5;

/// The share of the time of `kinds` in kinds that `others` have too.
double common_share(const Kinds& kinds, const Kinds& others) {
  double common_us = 0.0, us = 0.0;
  for (const auto& [kind, sum] : kinds) {
    const double kind_us = sum.wall_us.mean() * static_cast<double>(sum.wall_us.count());
    us += kind_us;
    if (others.contains(kind)) common_us += kind_us;
  }
  return us > 0.0 ? common_us / us : 0.0;
}

std::vector<SettingDiff> setting_diffs(const ProfileHeader& a, const ProfileHeader& b) {
  std::vector<SettingDiff> diffs;
  const auto add = [&](std::string what, std::string of_a, std::string of_b) {
    if (of_a != of_b) diffs.push_back({std::move(what), std::move(of_a), std::move(of_b)});
  };
  add("minfer", a.version, b.version);
  add("model", a.model, b.model);
  add("backend", a.backend, b.backend);
  add("device", a.device, b.device);
  add("threads", std::to_string(a.threads), std::to_string(b.threads));
  add("activations", std::string(name(a.activation_dtype)), std::string(name(b.activation_dtype)));
  std::map<std::string, std::pair<std::string, std::string>> options;
  for (const auto& [option, value] : a.options)
    options[option].first = value;
  for (const auto& [option, value] : b.options)
    options[option].second = value;
  for (const auto& [option, values] : options)
    add(option, values.first, values.second);
  return diffs;
}

}  // namespace

bool DiffTime::is_certain() const {
  return margin_us >= 0.0 &&
         std::abs(token_change_us()) > std::max(margin_us, 1e-9 * std::max(a_token_us, b_token_us));
}

double t_quantile(double freedom) {
  constexpr double z = 1.959964;
  // The expansion in 1 / freedom fails below two.
  if (freedom < 2.0) return freedom < 1.5 ? 12.706 : 6.314;
  if (freedom < 2.5) return 4.303;
  const double n = freedom;
  return z + (std::pow(z, 3) + z) / (4 * n) +
         (5 * std::pow(z, 5) + 16 * std::pow(z, 3) + 3 * z) / (96 * n * n) +
         (3 * std::pow(z, 7) + 19 * std::pow(z, 5) + 17 * std::pow(z, 3) - 15 * z) / (384 * n * n * n);
}

ProfileDiff diff_of(const DiffSums& a, const DiffSums& b) {
  ProfileDiff diff;
  diff.shapes = shape_diffs(a.kinds(), b.kinds());
  Kinds of_a = a.kinds(), of_b = b.kinds();
  std::vector<Pair> pairs = pairs_of(of_a, of_b);
  if (common_share(of_a, of_b) < kCommonShare || common_share(of_b, of_a) < kCommonShare) {
    diff.by_phase = true;
    of_a = whole_phases(of_a);
    of_b = whole_phases(of_b);
    pairs = pairs_of(of_a, of_b);
  }
  if (pairs.empty()) fail("the profiles have no steps of a common phase to compare");
  for (const Pair& pair : pairs)
    diff.kinds.push_back(pair.kind);
  diff.left_out_a = left_out(of_a, of_b);
  diff.left_out_b = left_out(of_b, of_a);
  diff.step = diff_time(pairs, [](const KindSum& kind, bool) { return kind.wall_us; });
  diff.phases = phase_diffs(pairs);
  diff.ops = op_diffs(pairs, a, b);
  diff.ops.push_back({.op = "(host and idle)",
                      .is_rest = true,
                      .time = diff_time(pairs, [](const KindSum& kind, bool) { return kind.rest_us; })});
  std::ranges::stable_sort(diff.ops, std::ranges::greater{},
                           [](const OpDiff& op) { return std::abs(op.time.token_change_us()); });
  diff.settings = setting_diffs(a.header(), b.header());
  return diff;
}

}  // namespace minfer
