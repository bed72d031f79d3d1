#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "profiling/report/report.h"
#include "profiling/text/table.h"

namespace minfer {
namespace {

constexpr size_t kBarColumns = 16;
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
  std::string line = fmt::format("step {}, {}: {} ms;", step.step, name(step.phase()), ms(step.wall_us));
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

std::string share_text(double share) {
  return fmt::format("{:.1f}", 100.0 * share);
}

Table step_phases(const StepSummary& step, bool colour) {
  Table table{{}, {"phase", "of the ops' time", "%", "us", "us/token"}};
  const auto add = [&](StepPhase phase, const PhaseTime& time) {
    if (time.tokens == 0) return;
    const double share = share_of(time.us, step.gpu_us);
    table.add(name(phase), coloured(bar(share), phase, colour), share_text(share), time.us,
              time.us / static_cast<double>(time.tokens));
  };
  add(StepPhase::prefill, step.prefill);
  add(StepPhase::decode, step.decode);
  return table;
}

Table step_ops(const StepSummary& step, bool colour) {
  std::vector<OpSummary> ops = step.ops;
  std::ranges::stable_sort(ops, std::ranges::greater{}, &OpSummary::us);
  Table table{{}, {"op", "of the ops' time", "%", "us", "calls", "phase", "GB/s", "roofline"}};
  for (const OpSummary& op : ops) {
    const double share = share_of(op.us, step.gpu_us);
    table.add(op.op, coloured(bar(share), op.phase, colour), share_text(share), op.us, op.calls,
              name(op.phase), op.gbps(),
              op.bound == Bound::unknown ? std::string("-")
                                         : fmt::format("{:.0f} % {}", 100.0 * op.roofline(), name(op.bound)));
  }
  return table;
}

}  // namespace

std::string render_step(const StepSummary& step, const ProfileHeader& header, bool colour) {
  std::string text = wrapped(batch_line(step), kTextColumns) + "\n";
  text += wrapped(wall_line(step), kTextColumns) + "\n";
  for (const Table& table : {step_phases(step, colour), step_ops(step, colour)}) {
    if (!table.rows.empty())
      text += text_table(table, kTextColumns, LongNames::wrap);  // the empty title parts them
  }
  if (header.ceilings.known())
    text += wrapped("roofline: " + ceilings_text(header) + ", measured", kTextColumns) + "\n";
  return text;
}

}  // namespace minfer
