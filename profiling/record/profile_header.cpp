#include "profiling/record/profile_header.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "kernels/base/clock.h"
#include "profiling/record/rank_step.h"

namespace minfer {

std::string_view name(ProfileDetail detail) {
  return detail == ProfileDetail::layer ? "layer" : "op";
}

std::vector<int32_t> AskedTiers::numbers() const {
  std::vector<int32_t> tiers{0};
  if (kernels) tiers.push_back(1);
  if (counters) tiers.push_back(2);
  return tiers;
}

std::string ceilings_text(const ProfileHeader& header) {
  const Ceilings& ceilings = header.ceilings;
  std::string text = fmt::format("{:.1f} GB/s read, {:.1f} GFLOP/s {}", ceilings.read_gbps, ceilings.gflops,
                                 name(header.activation_dtype));
  if (ceilings.fp8_gflops > 0.0) text += fmt::format(", {:.1f} GFLOP/s fp8", ceilings.fp8_gflops);
  return text;
}

std::vector<std::string_view> unit_names(const ProfileHeader& header, std::string_view op) {
  std::vector<std::string_view> units;
  for (const OpInfo& info : header.ops) {
    if (info.name != op) continue;
    const UnitShares shares = units_of(info);
    const std::string_view unit = shares.fp8 > 0.0       ? "fp8"
                                  : shares.vectors > 0.0 ? "f32"
                                                         : name(header.activation_dtype);
    if (std::ranges::find(units, unit) == units.end()) units.push_back(unit);
  }
  return units;
}

std::string units_text(const ProfileHeader& header) {
  std::map<std::string_view, std::set<std::string_view>, std::greater<>> ops;  // fp8, f32, bf16
  for (const OpInfo& op : header.ops) {
    if (op.kind == OpKind::transfer || is_between_ranks(op.kind)) continue;
    for (const std::string_view unit : unit_names(header, op.name))
      ops[unit].insert(op.name);
  }
  std::string text = "arithmetic: all ops in f32";
  if (ops.size() != 1 || !ops.contains("f32")) {
    text = "arithmetic:";
    for (const auto& [unit, names] : ops) {
      if (unit != "f32") text += fmt::format(" {} in {},", fmt::join(names, ", "), unit);
    }
    text += " the others in f32";
  }
  const Ceilings& ceilings = header.ceilings;
  std::string idle;
  const auto add = [&](std::string_view unit, double gflops) {
    if (gflops <= ceilings.gflops || ceilings.runs == 0 || ops.contains(unit)) return;
    idle += fmt::format("{} {} {:.1f}", idle.empty() ? "" : ",", unit, gflops / ceilings.gflops);
  };
  add("fp8", ceilings.fp8_gflops);
  add("bf16", ceilings.bf16_gflops);
  add("int8", ceilings.int8_gflops);
  if (!idle.empty()) text += "; the device has faster units that no op uses (times as much):" + idle;
  return text;
}

std::string measured_text(const Ceilings& ceilings) {
  if (ceilings.tries() == 0) return {};
  const std::chrono::sys_seconds time{std::chrono::seconds(ceilings.measured_unix_s)};
  const std::chrono::year_month_day date(std::chrono::floor<std::chrono::days>(time));
  return fmt::format(
      ", best of {} measurement{}{}, the last on {}-{:02}-{:02}", ceilings.tries(),
      ceilings.tries() == 1 ? "" : "s",
      ceilings.disturbed_runs > 0 ? fmt::format(" ({} while others took the cores)", ceilings.disturbed_runs)
                                  : "",
      static_cast<int>(date.year()), static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

void stamp_clocks(ProfileHeader& header) {
  using std::chrono::duration_cast, std::chrono::nanoseconds, std::chrono::system_clock;
  header.clock_ns = now_ns();
  header.unix_ns = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace minfer
