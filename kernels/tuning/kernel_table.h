#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tuning/plan_source.h"

namespace minfer::cuda {

/// From `first` to `last` tokens.
struct TokenRange {
  int64_t first = 0;
  int64_t last = 0;
};

/// A line of a table: what is fastest for a product, and what was measured with range.last tokens.
struct KernelTableLine {
  ProductShape shape;
  TokenRange tokens;
  ProductPlan plan;
  double us = 0.0;
  ProductPlan next;      ///< the fastest of the others
  double next_us = 0.0;  ///< its time
  double automatic_us = 0.0;
};

/// A plan and the median of its times.
struct MeasuredPlan {
  ProductPlan plan;
  double us = 0.0;
};

/// The range that a measurement of `tokens` tokens stands for: down to those that would have a smaller tile, or to the next smaller
/// number that was measured (0: none was).
TokenRange token_range(int64_t tokens, int64_t measured_below);
/// Of two plans or more, one of them automatic: the fastest, but automatic unless another takes 3 % less than that, which is more than
/// measurements differ by. Throws Error without automatic, or with fewer than two.
KernelTableLine choose_plan(const ProductShape& shape, TokenRange tokens,
                            std::span<const MeasuredPlan> measured);
/// The plans that take at most `factor` times as long as the fastest, and automatic: those that a longer measurement is worth.
std::vector<ProductPlan> close_plans(std::span<const MeasuredPlan> measured, double factor);

/// Which kernels compute products on one device, by measurements: what `minfer bench --kernels --tune` writes and `--kernel-table`
/// reads. Text, a line a product:
///
///   format 1
///   device sm_90 132 NVIDIA H200
///   bf16 gate_up 14336 4096 33-64 stream:64x128/line 56.71 stream:64x128/rounds 58.02 57.03
///
/// type, op, rows, columns, tokens, plan, its microseconds, the runner-up, its microseconds, those of `automatic`. Words stand between
/// any number of spaces; what follows # is a comment. For what no line has, and where the plan is `automatic`, LinearOps chooses.
class KernelTable : public PlanSource {
 public:
  static constexpr size_t kMostBytes = size_t{4} << 20;  ///< of its text

  /// Throws Error if two lines are about the same product, or a plan cannot compute its own.
  KernelTable(PlanDevice device, std::vector<KernelTableLine> lines);
  /// `file`: its name, for messages. Throws FileError naming the line, what was expected and what was found.
  static KernelTable parse(std::string_view text, std::string_view file);

  std::string text() const;
  const PlanDevice& device() const { return device_; }
  const std::vector<KernelTableLine>& lines() const { return lines_; }

  const ProductPlan* find(const ProductShape& shape, int64_t tokens) const override;
  void check_device(const PlanDevice& device) const override;

 private:
  /// Throws Error if the line of this index cannot be.
  void add(size_t index);

  PlanDevice device_;
  std::vector<KernelTableLine> lines_;
  std::map<ProductShape, std::map<int64_t, size_t>> by_last_tokens_;  ///< indices of lines
};

}  // namespace minfer::cuda
