#include "profiling/findings/same_work.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

namespace minfer {
namespace {

constexpr double kSlower = 1.25;       // than elsewhere
constexpr double kMuchSlower = 2.0;    // where it has more to do: kernels reach a part of the roof by size
constexpr double kBeyondChance = 3.0;  // standard errors of the difference
constexpr int64_t kEnoughSteps = 8;    // under a condition, and without it
constexpr double kMostOfWork = 0.5;    // that is done early and late

constexpr uint32_t kEager = 1u << static_cast<uint32_t>(StepCondition::eager);

/// Grows by one when a recording gets half as long again, or a third, in turns.
uint32_t part_of_recording(uint64_t step) {
  const auto bits = static_cast<uint32_t>(std::bit_width(step));
  return bits < 2 ? bits : 2 * bits + static_cast<uint32_t>(step >> (bits - 2) & 1);
}

/// The work of a call within a factor of two, by bytes and by arithmetic.
uint64_t key_of(const OpSummary& op) {
  const auto size = [&](int64_t work) {
    return static_cast<uint64_t>(std::bit_width(static_cast<uint64_t>(work / std::max(1, op.calls))));
  };
  return std::hash<std::string>{}(op.op) ^ (size(op.bytes) << 8 | size(op.flops)) * 0x9E3779B97F4A7C15ull;
}

}  // namespace

void SameWork::add(const StepSummary& step, uint32_t conditions) {
  const uint32_t part = part_of_recording(++steps_);
  for (const OpSummary& op : step.ops) {
    const uint64_t key = key_of(op);
    if (op.bytes == 0 && op.flops == 0 && op.floor_us <= 0.0) continue;  // nobody knows what it has to do
    if (op.us <= 0.0 || (cells_.size() >= kMostCells && !cells_.contains(key))) continue;
    Cell& cell = cells_[key];
    if (cell.op.empty()) cell.op = op.op;
    cell.is_memory_bound = op.bound == Bound::memory;
    const double floor_us = std::max(op.floor_us, ceilings_.floor_us(op.bytes, op.flops, {}));
    const double units = floor_us > 0.0 ? floor_us : static_cast<double>(std::max(op.bytes, op.flops));
    const double rate = op.us / units;
    const Sum one{1, op.calls, op.us, units, rate, rate * rate};
    cell.by_conditions[conditions] += one;
    if ((conditions & ~kEager) == 0) cell.by_part[part] += one;
  }
}

void SameWork::Sum::operator+=(const Sum& other) {
  steps += other.steps;
  calls += other.calls;
  us += other.us;
  units += other.units;
  rates += other.rates;
  squared_rates += other.squared_rates;
}

double SameWork::Sum::variance_of_mean() const {
  const double n = static_cast<double>(steps), mean = rates / n;
  return std::max(0.0, squared_rates / n - mean * mean) / (n - 1.0);
}

/// The time that these calls would take elsewhere.
double SameWork::Sum::expected_us(const Sum& elsewhere) const {
  return elsewhere.us *
         std::max(units / elsewhere.units, static_cast<double>(calls) / static_cast<double>(elsewhere.calls));
}

/// Their time beyond that; 0 if it may be chance.
double SameWork::Sum::beyond_us(const Sum& elsewhere, double slower) const {
  if (steps < kEnoughSteps || elsewhere.steps < kEnoughSteps) return 0.0;
  const double difference =
      rates / static_cast<double>(steps) - elsewhere.rates / static_cast<double>(elsewhere.steps);
  const double chance = kBeyondChance * std::sqrt(variance_of_mean() + elsewhere.variance_of_mean());
  const double expected = expected_us(elsewhere);
  return us >= slower * expected && difference > chance ? us - expected : 0.0;
}

/// The condition without which, all others being the same, these calls would have taken least, or else all of them together; and what they
/// took beyond that.
std::pair<uint32_t, double> SameWork::reason_of(const Sum& sum, uint32_t conditions, const Sums& all,
                                                double slower) {
  std::pair<uint32_t, double> most{0, 0.0};
  const auto hold_against = [&](uint32_t others, uint32_t reason) {
    const auto elsewhere = all.find(others);
    const double us = elsewhere == all.end() ? 0.0 : sum.beyond_us(elsewhere->second, slower);
    if (us > most.second) most = {reason, us};
  };
  for (uint32_t rest = conditions; rest != 0; rest &= rest - 1)
    hold_against(conditions & ~(rest & -rest), rest & -rest);
  if (most.second <= 0.0 && conditions != 0) hold_against(0, conditions & -conditions);
  return most;
}

/// Decode steps under no condition: the sums over the first third to half, and over the last quarter to half.
std::pair<SameWork::Sum, SameWork::Sum> SameWork::before_and_later(const Cell& cell) const {
  std::pair<Sum, Sum> parts;
  const uint32_t last = part_of_recording(steps_);
  for (const auto& [part, sum] : cell.by_part) {
    if (part + 1 >= last) parts.second += sum;
    if (part + 2 < last) parts.first += sum;
  }
  return parts;
}

std::pair<double, double> SameWork::early_and_late() const {
  double expected_us = 0.0, late_us = 0.0, all_us = 0.0;
  for (const auto& [key, cell] : cells_) {
    const auto [before, later] = before_and_later(cell);
    all_us += later.us;
    if (before.steps < kEnoughSteps || later.steps < kEnoughSteps) continue;
    expected_us += later.expected_us(before);
    late_us += later.us;
  }
  return late_us > kMostOfWork * all_us ? std::pair(expected_us, late_us) : std::pair(0.0, 0.0);
}

std::vector<Slowdown> SameWork::slowdowns() const {
  std::map<std::pair<StepCondition, std::string>, Slowdown> by_op;
  const auto add = [&](StepCondition condition, const Cell& cell, const Sum& sum, double beyond_us) {
    if (beyond_us <= 0.0) return;
    Slowdown& slowdown = by_op[{condition, cell.op}];
    slowdown = {condition, cell.op, slowdown.calls + sum.calls, slowdown.us + sum.us,
                slowdown.beyond_us + beyond_us};
  };
  std::unordered_map<std::string, Sums> of_op;
  for (const auto& [key, cell] : cells_) {
    if (!cell.is_memory_bound) continue;
    for (const auto& [conditions, sum] : cell.by_conditions)
      of_op[cell.op][conditions] += sum;
  }
  for (const auto& [key, cell] : cells_) {
    for (const auto& [conditions, sum] : cell.by_conditions) {
      auto reason = reason_of(sum, conditions, cell.by_conditions, kSlower);
      if (reason.first == 0 && cell.is_memory_bound)
        reason = reason_of(sum, conditions, of_op[cell.op], kMuchSlower);
      add(static_cast<StepCondition>(std::countr_zero(reason.first)), cell, sum, reason.second);
    }
    const auto [before, later] = before_and_later(cell);
    add(StepCondition::later, cell, later, later.beyond_us(before, kSlower));
  }
  std::vector<Slowdown> found;
  for (const auto& [key, slowdown] : by_op)
    found.push_back(slowdown);
  std::ranges::stable_sort(found, std::ranges::greater{}, &Slowdown::beyond_us);
  return found;
}

}  // namespace minfer
