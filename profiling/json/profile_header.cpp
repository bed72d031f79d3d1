#include "profiling/json/profile_header.h"

#include <chrono>

#include <fmt/format.h>

#include "kernels/stamps.h"

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

std::string measured_text(const Ceilings& ceilings) {
  if (ceilings.runs == 0) return {};
  const std::chrono::sys_seconds time{std::chrono::seconds(ceilings.measured_unix_s)};
  const std::chrono::year_month_day date(std::chrono::floor<std::chrono::days>(time));
  return fmt::format(", best of {} measurement{}, the last on {}-{:02}-{:02}", ceilings.runs,
                     ceilings.runs == 1 ? "" : "s", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

void stamp_clocks(ProfileHeader& header) {
  using std::chrono::duration_cast, std::chrono::nanoseconds, std::chrono::system_clock;
  header.clock_ns = now_ns();
  header.unix_ns = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace minfer
