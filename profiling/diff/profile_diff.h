#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "profiling/diff/diff_sums.h"

namespace minfer {

/// A time in both profiles: the mean of a step in microseconds, weighted over the compared kinds of steps.
struct DiffTime {
  double a_us = 0.0;
  double b_us = 0.0;
  double a_token_us = 0.0;  ///< the same, by token of a step
  double b_token_us = 0.0;
  /// Half the width of the 95 % confidence interval of b_token_us - a_token_us, by Welch's t from the spread of steps; negative: not
  /// known, since one side has a single step. It does not include differences from run to run.
  double margin_us = -1.0;

  double token_change_us() const { return b_token_us - a_token_us; }
  /// The relative change of the time by token, e.g. 0.03: B is slower by 3 %.
  double change() const { return a_token_us > 0.0 ? token_change_us() / a_token_us : 0.0; }
  /// True if the change is larger than the spread explains.
  bool is_certain() const;
};

/// A launch of a kernel by an op that only one side has.
struct LaunchDiff {
  std::string kernel;
  std::string path;  ///< the code path that launched it
  std::array<int32_t, 3> grid{};
  std::array<int32_t, 3> block{};
  int64_t steps = 0;       ///< steps with this launch
  int32_t more_grids = 0;  ///< number of other grids and blocks in which it launches the same kernel
};

/// An op of either profile, or the time of a step outside its ops.
struct OpDiff {
  enum class State : uint8_t { both, added, removed };
  std::string op;
  std::string renamed_to = {};  ///< in B, the name of an op of the same kind and sizes; empty: the same
  StepPhase phase = StepPhase::decode;
  State state = State::both;
  bool is_rest = false;  ///< not an op: host and idle time
  DiffTime time = {};
  double a_bytes = 0.0;  ///< least bytes moved in a step
  double b_bytes = 0.0;
  std::vector<std::string> a_kernels = {};  ///< sorted names of kernels that the other side does not launch
  std::vector<std::string> b_kernels = {};
  /// The launches of these kernels, most steps first. If both sides launch the same kernels in steps of one batch, only the launches with
  /// grids or blocks that the other side does not have.
  std::vector<LaunchDiff> a_launches = {};
  std::vector<LaunchDiff> b_launches = {};
};

struct PhaseDiff {
  StepPhase phase = StepPhase::decode;  ///< of steps
  int64_t a_steps = 0;
  int64_t b_steps = 0;
  DiffTime time = {};
};

/// A difference other than a time, e.g. {"device", "NVIDIA H100", "NVIDIA H200"}.
struct SettingDiff {
  std::string what;
  std::string a;
  std::string b;
};

/// A kind of step and its share of all steps in each profile.
struct ShapeDiff {
  StepKind kind;
  int64_t a_steps = 0;
  int64_t b_steps = 0;
  double a_share = 0.0;
  double b_share = 0.0;

  double change() const { return b_share - a_share; }
};

struct ProfileDiff {
  DiffTime step;  ///< wall time
  std::vector<PhaseDiff> phases;
  std::vector<OpDiff> ops;  ///< they add up to the difference; the largest parts first
  std::vector<SettingDiff> settings;
  std::vector<StepKind> kinds;  ///< the compared kinds
  bool by_phase = false;        ///< the profiles share too few kinds: whole phases were compared
  std::vector<std::pair<StepKind, int64_t>> left_out_a;  ///< steps of kinds that B does not have
  std::vector<std::pair<StepKind, int64_t>> left_out_b;
  std::vector<ShapeDiff> shapes;  ///< kinds of steps with different shares, largest difference first
};

/// Compares two profiles. It compares only steps of the same kind if both have some; each kind weighs by its steps in both.
/// Throws Error if the profiles have no phase in common.
ProfileDiff diff_of(const DiffSums& a, const DiffSums& b);

/// 97.5 % quantile of Student's t distribution with `freedom` > 0 degrees of freedom (Hill, CACM 1970; within 1 % from 2 on).
double t_quantile(double freedom);

enum class DiffFormat : uint8_t { table, json, md };
std::string_view name(DiffFormat format);

struct DiffNames {
  std::string a;
  std::string b;
};
/// Lines and tables for people, at most 80 columns in `table`.
std::string render_diff(const ProfileDiff& diff, const DiffNames& names, DiffFormat format);

}  // namespace minfer
