#include "profiling/report/step_picture.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "profiling/report/table.h"

namespace minfer {
namespace {

constexpr size_t kPictureColumns = 100;
constexpr size_t kBarColumns = 24;
constexpr size_t kRowNameColumns = 20;
constexpr int kEighths = 8;

// A bar of `share` of the columns, drawn in eighths of a character, and blanks up to its full length.
std::string bar(double share) {
  static constexpr std::array<const char*, kEighths> kParts{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(kBarColumns * kEighths));
  const auto whole = static_cast<size_t>(eighths / kEighths);
  const auto part = static_cast<size_t>(eighths % kEighths);
  std::string text;
  for (size_t i = 0; i < whole; ++i)
    text += "█";
  text += kParts[part];
  return text + std::string(kBarColumns - whole - (part > 0 ? 1 : 0), ' ');
}

std::string coloured(const std::string& text, StepPhase phase, bool colour) {
  static constexpr std::array<const char*, 3> kColours{"\x1b[33m", "\x1b[36m", "\x1b[35m"};  // by StepPhase
  return colour ? kColours[static_cast<size_t>(phase)] + text + "\x1b[0m" : text;
}

double share_of(double part, double whole) {
  return whole > 0.0 ? part / whole : 0.0;
}

std::string requests(int32_t count) {
  return fmt::format("{} request{}", count, count == 1 ? "" : "s");
}

std::string batch_line(const StepSummary& step) {
  const BatchShape& shape = step.batch.shape;
  std::string line =
      fmt::format("step {}, {}: {} ms;", step.step, name(step.phase()), three_digits(step.wall_us * 1e-3));
  if (shape.prefill_tokens > 0) {
    line +=
        fmt::format(" prefill of {} tokens ({});", shape.prefill_tokens, requests(shape.prefill_sequences));
  }
  if (shape.decode_tokens > 0) {
    line += fmt::format(" decode of {} tokens ({});", shape.decode_tokens, requests(shape.decode_sequences));
  }
  return line + fmt::format(" KV blocks {}/{}", step.batch.kv_blocks_used, step.batch.kv_blocks_total);
}

std::string wall_line(const StepSummary& step) {
  std::string line = fmt::format("wall time: ops {:.1f} %", 100.0 * share_of(step.gpu_us, step.wall_us));
  for (size_t i = 0; i < kHostSpans; ++i) {
    if (step.host_us[i] <= 0.0) continue;
    line += fmt::format(", {} {:.1f} %", name(static_cast<HostSpan>(i)),
                        100.0 * share_of(step.host_us[i], step.wall_us));
  }
  return line + fmt::format("; attributed {:.1f} %", 100.0 * step.best_attributed());
}

std::string phase_line(const StepSummary& step, StepPhase phase, const PhaseTime& time, bool colour) {
  if (time.tokens == 0) return {};
  const double share = share_of(time.us, step.gpu_us);
  return fmt::format("{:<{}} {} {:>5.1f} % {:>7} us, {} us/token\n", name(phase), kRowNameColumns,
                     coloured(bar(share), phase, colour), 100.0 * share, three_digits(time.us),
                     three_digits(time.us / time.tokens));
}

std::string op_line(const StepSummary& step, const OpSummary& op, bool colour) {
  const double share = share_of(op.us, step.gpu_us);
  const std::string roofline = op.bound == Bound::unknown
                                   ? std::string("-")
                                   : fmt::format("{:.0f} % {}", 100.0 * op.roofline(), name(op.bound));
  return fmt::format("{:<{}.{}} {} {:>5.1f} % {:>7} {:>5} {:>7} {:>6} {:>14}\n", op.op, kRowNameColumns,
                     kRowNameColumns, coloured(bar(share), op.phase, colour), 100.0 * share,
                     three_digits(op.us), op.calls, name(op.phase), three_digits(op.gbps()), roofline);
}

}  // namespace

std::string render_step(const StepSummary& step, const ProfileHeader& header, bool colour) {
  std::string text = wrapped(batch_line(step), kPictureColumns) + "\n";
  text += wrapped(wall_line(step), kPictureColumns) + "\n\n";
  text += phase_line(step, StepPhase::prefill, step.prefill, colour);
  text += phase_line(step, StepPhase::decode, step.decode, colour);
  text +=
      fmt::format("\n{:<{}} {:<{}} {:>7} {:>7} {:>5} {:>7} {:>6} {:>14}\n", "op", kRowNameColumns,
                  "share of the ops' time", kBarColumns, "", "us", "calls", "phase", "GB/s", "of roofline");
  std::vector<OpSummary> ops = step.ops;
  std::ranges::stable_sort(ops, std::ranges::greater{}, &OpSummary::us);
  for (const OpSummary& op : ops)
    text += op_line(step, op, colour);
  return header.ceilings.known() ? text + "roofline: " + ceilings_text(header) + ", measured\n" : text;
}

}  // namespace minfer
